"""A tiny random model for llama.cpp, and the command that serves it with xllamacpp."""

from pathlib import Path

import numpy as np

SERVER = """\
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.n_ctx, params.n_parallel = sys.argv[1], int(sys.argv[2]), 4096, 1
params.cpuparams.n_threads = 1
params.warmup = False
server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
time.sleep(600)
"""
_WIDTH, _HEADS, _INNER, _CONTEXT = 32, 2, 64, 4096


def write_gguf(path: Path) -> Path:
    """Write a Llama with one layer, whose tokens are bytes."""
    import gguf

    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL, *[gguf.TokenType.BYTE] * 256]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: ")
    shapes = {
        "token_embd": (len(tokens), _WIDTH),
        "output": (len(tokens), _WIDTH),
        **{f"blk.0.attn_{name}": (_WIDTH, _WIDTH) for name in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{name}": (_INNER, _WIDTH) for name in ("gate", "up")},
        "blk.0.ffn_down": (_WIDTH, _INNER),
    }
    rng = np.random.default_rng(1)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(0, 0.1, shape).astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(_WIDTH, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
