"""Writes tiny random models whose layers keep a running state instead of a past: Mamba, and Jamba, which mixes such
layers with attention. What they say is noise, and the same noise each time."""

import gguf
import numpy as np

VOCABULARY = 300
WIDTH, INNER, STATE, CONV, RANK = 64, 128, 16, 4, 4


def write(path, *, hybrid=False, layers=4, seed=0):
    """A model of `layers` layers, every other one with attention where `hybrid`; the path."""
    arch = "jamba" if hybrid else "mamba"
    attention = [layer % 2 == 1 and hybrid for layer in range(layers)]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(2048)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(2 * WIDTH if hybrid else 0)
    writer.add_head_count(4 if hybrid else 0)
    if hybrid:
        writer.add_head_count_kv([2 if has else 0 for has in attention])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_ssm_conv_kernel(CONV)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(RANK)
    writer.add_vocab_size(VOCABULARY)
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    texts += [f"word{number}" for number in range(VOCABULARY - len(texts))]
    types = [2, 3, 3, *[6] * 256, *[1] * (VOCABULARY - 259)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    random = np.random.default_rng(seed)

    def add(name, *shape, scale=1.0):
        tensor = random.standard_normal(shape) / np.sqrt(shape[-1]) * scale
        writer.add_tensor(name, tensor.astype(np.float32))

    def fixed(name, values):
        writer.add_tensor(name, np.asarray(values, dtype=np.float32))

    add("token_embd.weight", VOCABULARY, WIDTH, scale=8.0)
    for layer, has_attention in enumerate(attention):
        block = f"blk.{layer}"
        fixed(f"{block}.attn_norm.weight", np.ones(WIDTH))
        if has_attention:
            add(f"{block}.attn_q.weight", WIDTH, WIDTH)
            add(f"{block}.attn_k.weight", WIDTH // 2, WIDTH)
            add(f"{block}.attn_v.weight", WIDTH // 2, WIDTH)
            add(f"{block}.attn_output.weight", WIDTH, WIDTH)
        else:
            add(f"{block}.ssm_in.weight", 2 * INNER, WIDTH)
            add(f"{block}.ssm_conv1d.weight", INNER, CONV, scale=2.0)
            fixed(f"{block}.ssm_conv1d.bias", np.zeros(INNER))
            add(f"{block}.ssm_x.weight", RANK + 2 * STATE, INNER)
            add(f"{block}.ssm_dt.weight", INNER, RANK)
            # Slow decay, so that what was said long ago counts.
            fixed(f"{block}.ssm_dt.bias", np.full(INNER, -3.0))
            fixed(f"{block}.ssm_a", -np.tile(np.arange(1, STATE + 1) / STATE, (INNER, 1)))
            fixed(f"{block}.ssm_d", np.ones(INNER))
            add(f"{block}.ssm_out.weight", WIDTH, INNER)
            if hybrid:
                fixed(f"{block}.ssm_dt_norm.weight", np.ones(RANK))
                fixed(f"{block}.ssm_b_norm.weight", np.ones(STATE))
                fixed(f"{block}.ssm_c_norm.weight", np.ones(STATE))
        if hybrid:
            fixed(f"{block}.ffn_norm.weight", np.ones(WIDTH))
            add(f"{block}.ffn_gate.weight", 2 * WIDTH, WIDTH)
            add(f"{block}.ffn_up.weight", 2 * WIDTH, WIDTH)
            add(f"{block}.ffn_down.weight", WIDTH, 2 * WIDTH)
    fixed("output_norm.weight", np.ones(WIDTH))
    add("output.weight", VOCABULARY, WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)
