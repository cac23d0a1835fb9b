/* Runs a fuzz target over a corpus: files, or folders of files. The same target that a fuzzer
 * drives. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return fprintf(stderr, "%s: cannot be read\n", path), 0;
    struct stat s;
    uint8_t *data = NULL;
    int good = fstat(fileno(f), &s) == 0 && (data = malloc((size_t)s.st_size + 1)) != NULL &&
               fread(data, 1, (size_t)s.st_size, f) == (size_t)s.st_size;
    (void)fclose(f);
    if (good) (void)LLVMFuzzerTestOneInput(data, (size_t)s.st_size);
    free(data);
    return good;
}

static int replay(const char *path)
{
    DIR *d = opendir(path);
    if (!d) return replay_file(path);
    int n = 0;
    struct dirent *e;
    while ((e = readdir(d)) != NULL) {
        char file[4096];
        if (e->d_name[0] == '.') continue;
        (void)snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        n += replay_file(file);
    }
    (void)closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++) n += replay(argv[i]);
    (void)printf("%d inputs\n", n);
    return n == 0; /* an empty corpus proves nothing */
}
