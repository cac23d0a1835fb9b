/* The literals of the chat format (encoding.md 1, 2.5-2.7). The bars are U+FF5C, the low lines
 * inside begin and end of sentence U+2581. */
#ifndef DSF_TEXT_PROTOCOL_H
#define DSF_TEXT_PROTOCOL_H

#define DSF_BOS        "<｜begin▁of▁sentence｜>"
#define DSF_EOS        "<｜end▁of▁sentence｜>"
#define DSF_SYSTEM     "<｜System｜>"
#define DSF_USER       "<｜User｜>"
#define DSF_ASSISTANT  "<｜Assistant｜>"
#define DSF_REMINDER   "<｜latest_reminder｜>"
#define DSF_THINK      "<think>"
#define DSF_THINK_END  "</think>"
#define DSF_DSML       "｜DSML｜"
#define DSF_IMAGE      "<｜deepseek_image｜>"
#define DSF_CALLS      "<" DSF_DSML " calls>"
#define DSF_CALLS_END  "</" DSF_DSML " calls>"
#define DSF_INVOKE     "<" DSF_DSML " invoke"
#define DSF_INVOKE_END "</" DSF_DSML " invoke>"
#define DSF_PARAM      "<" DSF_DSML " parameter"
#define DSF_PARAM_END  "</" DSF_DSML " parameter>"
#define DSF_EFFORT_LINE                                                                            \
    "Reasoning Effort: %d (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
#define DSF_FORMAT_HEADING                                                                         \
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
#define DSF_TOOLS_PREFIX                                                                           \
    "## Tools\n\nYou have access to a set of tools to help answer the user's question. You can "   \
    "invoke tools by writing a \"" DSF_CALLS "\" block like the following:\n\n" DSF_CALLS          \
    "\n" DSF_INVOKE " name=\"$TOOL_NAME\">\n" DSF_PARAM                                            \
    " name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE" DSF_PARAM_END               \
    "\n...\n" DSF_INVOKE_END "\n" DSF_INVOKE " name=\"$TOOL_NAME2\">\n...\n" DSF_INVOKE_END        \
    "\n" DSF_CALLS_END                                                                             \
    "\n\nString parameters should be specified as is and set `string=\"true\"`. For all other "    \
    "types (numbers, booleans, arrays, objects), pass the value in JSON format and set "           \
    "`string=\"false\"`.\n\nIf thinking_mode is enabled (triggered by " DSF_THINK                  \
    "), you MUST output your complete reasoning inside " DSF_THINK "..." DSF_THINK_END             \
    " BEFORE any tool calls or final response.\n\nOtherwise, output directly after " DSF_THINK_END \
    " with tool calls or final response.\n\n### Available Tool Schemas\n\n"
#define DSF_TOOLS_SUFFIX                                                                           \
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke "    \
    "tool calls.\n"

#endif
