"""Raw completions with OpenAI's own client, on the embedded model."""

ASK = {"model": "anything", "temperature": 0}


def test_a_continuation(server):
    reply = server.openai.completions.create(prompt="The capital of France is", max_tokens=3, **ASK)
    assert "Paris" in reply.choices[0].text
    assert (reply.object, reply.choices[0].finish_reason) == ("text_completion", "length")
    assert reply.usage.completion_tokens == 3


def test_a_stream_says_the_same(server):
    whole = server.openai.completions.create(prompt="Once upon a time", max_tokens=8, **ASK)
    with server.openai.completions.create(
        prompt="Once upon a time", max_tokens=8, stream=True, stream_options={"include_usage": True}, **ASK
    ) as stream:
        chunks = list(stream)
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 8
    assert [choice.finish_reason for chunk in chunks[-2:] for choice in chunk.choices] == ["length"]


def test_sixteen_tokens_where_nothing_is_said(server):
    assert server.openai.completions.create(prompt="1 2 3 4 5 6", **ASK).usage.completion_tokens == 16


def test_several_prompts_in_order(server):
    prompts = ["The capital of France is", "One, two, three,", "The sun is"]
    alone = [server.openai.completions.create(prompt=one, max_tokens=4, **ASK) for one in prompts]
    reply = server.openai.completions.create(prompt=prompts, n=2, max_tokens=4, **ASK)
    assert [choice.index for choice in reply.choices] == list(range(6))
    assert [choice.text for choice in reply.choices] == [one.choices[0].text for one in alone for _ in range(2)]
    assert reply.usage.prompt_tokens == sum(one.usage.prompt_tokens for one in alone)
    assert reply.usage.completion_tokens == 24


def test_token_ids(server):
    def text(prompt):
        return [
            choice.text for choice in server.openai.completions.create(prompt=prompt, max_tokens=4, **ASK).choices
        ]

    assert text([100, 200, 300]) == text([[100, 200, 300]])
    assert text([[100, 200, 300], [5]]) == text([100, 200, 300]) + text([5])


def test_a_prompt_resent_is_warm(server):
    prompt = "A list of rivers: " + ", ".join(f"river number {number}" for number in range(20))
    first = server.openai.completions.create(prompt=prompt, max_tokens=2, **ASK).usage
    again = server.openai.completions.create(prompt=prompt, max_tokens=2, **ASK).usage
    assert first.prompt_tokens_details.cached_tokens < 10
    assert again.prompt_tokens_details.cached_tokens >= again.prompt_tokens - 1
