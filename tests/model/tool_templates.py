"""Chat templates with tools, written for tests from the public descriptions of three formats."""

_HERMES_SYSTEM = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
    {{- '# Tools\\n\\nSignatures:\\n<tools>' }}
    {%- for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}
    {{- '\\n</tools>\\n\\nCall one as <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
"""

_HERMES_CALLS = """\
        {%- for call in message.tool_calls %}
            {%- set function = call.function %}
            {{- '\\n' if content or not loop.first }}
            {{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' }}
            {{- function.arguments if function.arguments is string else function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
"""

_HERMES_RESULTS = """\
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
    {%- endif %}
"""

HERMES = (
    _HERMES_SYSTEM
    + """\
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content or '' %}
        {{- '<|im_start|>assistant\\n' + content }}
"""
    + _HERMES_CALLS
    + _HERMES_RESULTS
    + """\
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
)

# as HERMES; reasoning stays only in what comes after the last question
REASONS = (
    _HERMES_SYSTEM
    + """\
{%- set ns = namespace(asked=0) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set ns.asked = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = (message.content or '').split('</think>')[-1].lstrip('\\n') %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.asked and loop.last %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
        {{- content }}
"""
    + _HERMES_CALLS
    + _HERMES_RESULTS
    + """\
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
)

# the header itself opens the reasoning
ALWAYS_REASONS = REASONS.replace(
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}",
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}",
).replace(
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}",
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}",
)

LLAMA = """\
{{- bos_token }}
{%- if tools_in_user_message is not defined %}{% set tools_in_user_message = true %}{% endif %}
{%- if messages[0].role == 'system' %}
    {%- set system_message = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools and not tools_in_user_message %}
    {{- 'Answer with {"name": function name, "parameters": {...}} to call one of these.\\n\\n' }}
    {%- for tool in tools %}{{ tool | tojson(indent=4) + '\\n\\n' }}{% endfor %}
{%- endif %}
{{- system_message + '<|eot_id|>' }}
{%- if tools and tools_in_user_message %}
    {%- if not messages %}{{ raise_exception('no first user message to put the tools in') }}{% endif %}
{%- endif %}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}{{ raise_exception('one tool call at a time') }}{% endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson + '}<|eot_id|>' }}
    {%- elif message.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {{- (message.content | tojson if message.content is mapping else message.content) + '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
        {{- message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
"""

LLAMA_TAGGED = LLAMA.replace("""\\n\\n{"name": "' + call.name""", """\\n\\n<|python_tag|>{"name": "' + call.name""")

MISTRAL = """\
{%- if messages[0].role == 'system' %}
    {%- set system_message = messages[0].content %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- set users = messages | selectattr('role', 'equalto', 'user') | list %}
{%- set ns = namespace(at=0) %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
        {%- if (message.role == 'user') != (ns.at % 2 == 0) %}
            {{- raise_exception('roles must alternate user and assistant') }}
        {%- endif %}
        {%- set ns.at = ns.at + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- if tools and message == users[-1] %}
            {{- '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' }}
        {%- if loop.first and system_message is defined %}{{ system_message + '\\n\\n' }}{% endif %}
        {{- message.content + '[/INST]' }}
    {%- elif message.tool_calls %}
        {{- '[TOOL_CALLS] [' }}
        {%- for call in message.tool_calls %}
            {%- if call.id | length != 9 %}{{ raise_exception('nine letters or digits') }}{% endif %}
            {{- '{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson }}
            {{- ', "id": "' + call.id + '"}' + (', ' if not loop.last else ']') }}
        {%- endfor %}
        {{- eos_token }}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + message.content + eos_token }}
    {%- elif message.role == 'tool' %}
        {%- if message.tool_call_id | length != 9 %}{{ raise_exception('nine letters or digits') }}{% endif %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | tojson + ', "call_id": "' }}
        {{- message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}
"""

# arguments are put in as they are
WANTS_TEXT = HERMES.replace(
    "{{- function.arguments if function.arguments is string else function.arguments | tojson }}",
    "{{- function.arguments + '' }}",
)
TAGGED_XML = HERMES.replace('{"name": "', "<function=").replace('\'", "arguments": \' }}', "'>' }}")
LEAVES_OUT = HERMES.replace("message.tool_calls", "message.no_such_thing")
REFUSES = HERMES.replace(
    "{%- for call in message.tool_calls %}",
    "{%- if message.tool_calls %}{{ raise_exception('no calls please') }}{% endif %}{%- for call in [] %}",
)
WITHOUT_ARRAY = MISTRAL.replace("'[TOOL_CALLS] ['", "'[TOOL_CALLS]' + message.tool_calls[0].function.name + '[ARGS]'")
