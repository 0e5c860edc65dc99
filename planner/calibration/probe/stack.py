"""A Llama-shaped stack of layers with random weights: one decode step, one prefill step.

What a serving engine does per layer, without its scheduler: norm, fused QKV product, attention over a bf16 KV
cache, output product, norm, fused gate and up product, SiLU, down product; after the last layer a norm and the
vocabulary product. Rotary embedding (which engines fuse) and sampling are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from planner.calibration.probe.kernels import Linear, random_tensor, synchronise, time_calls
from planner.calibration.probe.machine import Machine

_TRIAL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StackShape:
    """Numbers of a Llama-shaped model."""

    model: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int

    @property
    def layer_weights(self) -> int:
        """Weights of one layer's matrices."""
        attention = self.hidden * self.head_width * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def head_weights(self) -> int:
        """Weights of the vocabulary product."""
        return self.hidden * self.vocabulary

    def kv_bytes(self, tokens: int) -> int:
        """Bytes of bf16 keys and values of one layer for so many tokens."""
        return 2 * 2 * tokens * self.kv_heads * self.head_width


# Shapes from the models' published config.json.
LLAMA_8B = StackShape(
    model="llama-3.1-8b",
    layers=32,
    hidden=4096,
    intermediate=14336,
    heads=32,
    kv_heads=8,
    head_width=128,
    vocabulary=128256,
)
LLAMA_70B = StackShape(
    model="llama-3.1-70b",
    layers=80,
    hidden=8192,
    intermediate=28672,
    heads=64,
    kv_heads=8,
    head_width=128,
    vocabulary=128256,
)
TOY = StackShape(model="toy", layers=4, hidden=64, intermediate=128, heads=4, kv_heads=2, head_width=16, vocabulary=256)


class _Layer:
    """Weights of one layer, and its two halves around attention."""

    def __init__(self, machine: Machine, shape: StackShape, precision: str) -> None:
        width = shape.head_width
        self.qkv = Linear(machine, precision, shape.hidden, (shape.heads + 2 * shape.kv_heads) * width)
        self.output = Linear(machine, precision, shape.heads * width, shape.hidden)
        self.gate_up = Linear(machine, precision, shape.hidden, 2 * shape.intermediate)
        self.down = Linear(machine, precision, shape.intermediate, shape.hidden)
        self._functional = machine.torch.nn.functional
        self._hidden = shape.hidden

    def norm(self, states: Any) -> Any:
        """Normalise by the root mean square."""
        return self._functional.rms_norm(states, (self._hidden,))

    def finish(self, states: Any, attended: Any) -> Any:
        """Add attention's output and the feed-forward block."""
        states = states + self.output(attended)
        gate, up = self.gate_up(self.norm(states)).chunk(2, dim=-1)
        return states + self.down(self._functional.silu(gate) * up)


class Stack:
    """Layers resident on the device, as many as were asked for."""

    def __init__(self, machine: Machine, shape: StackShape, precision: str, layers: int) -> None:
        """Make random weights for ``layers`` layers and the vocabulary product (never FP8, as in engines)."""
        self.machine = machine
        self.shape = shape
        self.precision = precision
        self.layers = [_Layer(machine, shape, precision) for _ in range(layers)]
        self._head = Linear(machine, machine.precision, shape.hidden, shape.vocabulary)
        synchronise(machine)

    def head_call(self, rows: int) -> Callable[[], object]:
        """Return the part of a step outside the layers: the last norm and the vocabulary product."""
        states = random_tensor(self.machine, (rows, self.shape.hidden))
        return lambda: self._head(self.layers[0].norm(states))

    def decode_call(self, batch: int, context_tokens: int) -> tuple[Callable[[], object], str]:
        """Return one decode step for a batch at a context, and how it attends and is launched."""
        shape = self.shape
        rows = self.layers[0].qkv.padded(batch)
        states = random_tensor(self.machine, (rows, shape.hidden))
        cache_shape = (2, batch, shape.kv_heads, context_tokens, shape.head_width)
        caches = [random_tensor(self.machine, cache_shape) for _ in self.layers]
        attend, name = self._fastest_attention(batch, caches[0])

        def step() -> Any:
            current = states
            for layer, cache in zip(self.layers, caches, strict=True):
                qkv = layer.qkv(layer.norm(current))
                attended = attend(qkv[:batch], cache)
                if rows > batch:
                    attended = self.machine.torch.nn.functional.pad(attended, (0, 0, 0, rows - batch))
                current = layer.finish(current, attended)
            return self._head(self.layers[0].norm(current[:batch]))

        return self._captured(step, name)

    def prefill_call(self, sequences: int, sequence_tokens: int) -> Callable[[], object]:
        """Return one eager prefill step of whole sequences; the vocabulary product sees last tokens alone."""
        shape, functional = self.shape, self.machine.torch.nn.functional
        states = random_tensor(self.machine, (sequences * sequence_tokens, shape.hidden))
        group = shape.heads // shape.kv_heads
        split = [shape.heads, shape.kv_heads, shape.kv_heads]

        def step() -> Any:
            current = states
            for layer in self.layers:
                qkv = layer.qkv(layer.norm(current)).view(sequences, sequence_tokens, sum(split), shape.head_width)
                query, key, value = (part.transpose(1, 2) for part in qkv.split(split, dim=2))
                key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
                attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
                current = layer.finish(current, attended.transpose(1, 2).reshape(-1, shape.heads * shape.head_width))
            last = current.view(sequences, sequence_tokens, shape.hidden)[:, -1]
            return self._head(layer.norm(last))

        return step

    def attentions(self, batch: int) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
        """Return decode attention two ways, each from QKV rows and a layer's cache: fused, and by batched products."""
        shape, torch = self.shape, self.machine.torch
        group = shape.heads // shape.kv_heads
        scale = shape.head_width**-0.5

        def query_of(qkv: Any) -> Any:
            # The query heads that share a KV head take the place of query positions: decode needs no mask.
            query = qkv[:, : shape.heads * shape.head_width]
            return query.reshape(batch, shape.kv_heads, group, shape.head_width)

        def fused(qkv: Any, cache: Any) -> Any:
            attended = torch.nn.functional.scaled_dot_product_attention(query_of(qkv), cache[0], cache[1])
            return attended.reshape(batch, -1)

        def products(qkv: Any, cache: Any) -> Any:
            scores = torch.matmul(query_of(qkv) * scale, cache[0].transpose(-1, -2))
            return torch.matmul(torch.softmax(scores, dim=-1), cache[1]).reshape(batch, -1)

        return fused, products

    def _fastest_attention(self, batch: int, cache: Any) -> tuple[Callable[[Any, Any], Any], str]:
        """Take the faster way of attending: torch's kernel does not split a long context, products do."""
        shape = self.shape
        fused, products = self.attentions(batch)
        qkv = random_tensor(self.machine, (batch, (shape.heads + 2 * shape.kv_heads) * shape.head_width))
        fused_s = time_calls(self.machine, lambda: fused(qkv, cache), _TRIAL_S).call_s
        products_s = time_calls(self.machine, lambda: products(qkv, cache), _TRIAL_S).call_s
        return (fused, "fused attention") if fused_s <= products_s else (products, "attention by products")

    def _captured(self, step: Callable[[], Any], name: str) -> tuple[Callable[[], object], str]:
        """Capture a step in a graph where the device has graphs, so that launches do not count."""
        if not self.machine.is_accelerator:
            return step, f"{name}, eager"
        torch = self.machine.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                step()
        except RuntimeError as error:
            return step, f"{name}, eager ({str(error).splitlines()[0]})"

        def replay() -> object:
            graph.replay()
            return step  # the graph holds addresses only: the closure keeps weights and caches alive

        return replay, f"{name}, graph"
