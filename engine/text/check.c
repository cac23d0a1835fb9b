/* First pass over the messages: everything that is refused by itself (encoding.md 2.2, 2.9). */
#include "text/check.h"

#include <stdio.h>
#include <string.h>

#include "text/protocol.h"

static bool is_kind(const dsf_json *v, dsf_json_kind k) { return v && dsf_json_kind_of(v) == k; }

static bool has_literal(const dsf_json *v)
{
    size_t n;
    const char *s = dsf_json_text(v, &n);
    return is_kind(v, DSF_JSON_STRING) && memmem(s, n, DSF_IMAGE, strlen(DSF_IMAGE)) != NULL;
}

static const char *kind_name(const dsf_json *v) { return dsf_json_kind_name(dsf_json_kind_of(v)); }

static bool is_source(const dsf_json *v)
{
    return dsf_turns_truth(v) && (is_kind(v, DSF_JSON_STRING) || is_kind(v, DSF_JSON_OBJECT));
}

bool dsf_check_image(const dsf_json *block, dsf_chat_image *image)
{
    *image = (dsf_chat_image){0};
    const dsf_json *url = dsf_turns_get(block, "image_url");
    if (strcmp(dsf_turns_type(block), "image_url") == 0) {
        image->url = is_kind(url, DSF_JSON_OBJECT) ? dsf_turns_get(url, "url") : url;
        return is_kind(image->url, DSF_JSON_STRING) && dsf_turns_truth(image->url);
    }
    image->source = dsf_turns_get(block, "source");
    image->url = dsf_turns_get(block, "url");
    image->data = dsf_turns_get(block, "data");
    return is_source(image->source) || is_source(image->url) || is_source(image->data);
}

/* `place`: path of the list, such as messages[2].content; nested lists are tool results. */
static dsf_status check_blocks(dsf_chat *c, const char *place, const dsf_json *list)
{
    int i = 0;
    for (const dsf_json *b = dsf_json_first(list); b; b = dsf_json_next(b), i++) {
        dsf_chat_image image;
        if (!is_kind(b, DSF_JSON_OBJECT))
            return DSF_CHAT_FAIL(c, BAD_TYPE, "%s[%d]: %s, expected an object", place, i,
                                 kind_name(b));
        const char *type = dsf_turns_type(b);
        const dsf_json *text = dsf_turns_get(b, "text"), *content = dsf_turns_get(b, "content");
        if (*type == 0)
            return DSF_CHAT_FAIL(c, MISSING_KEY, "%s[%d].type: missing, or no string", place, i);
        if (dsf_turns_is_image(b) && !dsf_check_image(b, &image))
            return DSF_CHAT_FAIL(c, NO_IMAGE_SOURCE, "%s[%d]: %s without a source", place, i, type);
        if (strcmp(type, "text") == 0 && text && !is_kind(text, DSF_JSON_STRING))
            return DSF_CHAT_FAIL(c, BAD_TYPE, "%s[%d].text: %s, expected a string", place, i,
                                 kind_name(text));
        if (strcmp(type, "text") == 0 && text && has_literal(text))
            return DSF_CHAT_FAIL(c, LITERAL_IMAGE, "%s[%d].text: contains the image placeholder",
                                 place, i);
        if (strcmp(type, "tool_result") == 0 && is_kind(content, DSF_JSON_ARRAY)) {
            char inner[160];
            int n = snprintf(inner, sizeof inner, "%s[%d].content", place, i);
            if (n < 0 || (size_t)n >= sizeof inner)
                return DSF_CHAT_FAIL(c, BAD_TYPE, "%s[%d]: tool results nested too deep", place, i);
            DSF_TRY(check_blocks(c, inner, content));
        }
    }
    return DSF_OK;
}

static dsf_status check_message(dsf_chat *c, const char *place, const dsf_json *m)
{
    if (!is_kind(m, DSF_JSON_OBJECT))
        return DSF_CHAT_FAIL(c, BAD_TYPE, "%s: %s, expected an object", place, kind_name(m));
    const dsf_json *role = dsf_turns_get(m, "role");
    if (!role) return DSF_CHAT_FAIL(c, MISSING_KEY, "%s.role: missing", place);
    if (!is_kind(role, DSF_JSON_STRING))
        return DSF_CHAT_FAIL(c, BAD_ROLE, "%s.role: %s, expected a string", place, kind_name(role));
    static const char *const texts[] = {"content", "reasoning_content"};
    for (int i = 0; i < 2; i++) {
        const dsf_json *v = dsf_turns_get(m, texts[i]);
        if (v && has_literal(v))
            return DSF_CHAT_FAIL(c, LITERAL_IMAGE, "%s.%s: contains the image placeholder", place,
                                 texts[i]);
    }
    const dsf_json *blocks = dsf_turns_get(m, "content_blocks");
    if (blocks && !is_kind(blocks, DSF_JSON_ARRAY) && dsf_turns_truth(blocks))
        return DSF_CHAT_FAIL(c, BAD_TYPE, "%s.content_blocks: %s, expected a list", place,
                             kind_name(blocks));
    const dsf_json *content = dsf_turns_get(m, "content"), *list = dsf_turns_blocks(m);
    if (list) {
        char inner[160];
        (void)snprintf(inner, sizeof inner, "%s.%s", place,
                       list == content ? "content" : "content_blocks");
        return check_blocks(c, inner, list);
    }
    if (content && !is_kind(content, DSF_JSON_STRING) &&
        strcmp(dsf_json_text(role, NULL), "user") == 0)
        return DSF_CHAT_FAIL(c, BAD_TYPE, "%s.content: %s, expected a string or a list", place,
                             kind_name(content));
    return DSF_OK;
}

dsf_status dsf_check_messages(dsf_chat *c, const dsf_message_list *list)
{
    char place[48];
    int i = 0;
    for (const dsf_json *m = list->list ? dsf_json_first(list->list) : NULL; m;
         m = dsf_json_next(m), i++) {
        (void)snprintf(place, sizeof place, "%s[%d]", list->where, i);
        DSF_TRY(check_message(c, place, m));
    }
    return DSF_OK;
}
