"""Softmax with classes first, against torch's over the last axis."""

from __future__ import annotations

import pytest
import torch

from fewview.numerics.softmax import log_softmax, softmax


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5,), (7, 1), (4, 30, 3), (2, 3, 9, 15), (4, 30, 16), (0, 5, 3)])
def test_as_torch_does_it(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = 20 * torch.randn(shape, dtype=dtype)
    if logits.numel() > 20:
        logits[..., 0, 0] = -torch.inf
    for ours, theirs in ((softmax, torch.softmax), (log_softmax, torch.log_softmax)):
        found = ours(logits)
        assert found.dtype == dtype
        torch.testing.assert_close(found, theirs(logits, dim=-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [softmax, log_softmax])
def test_few_classes_lie_before_queries_in_memory(function: object) -> None:
    """Which is what makes it quick on a CPU; torch is as quick by itself from 16 classes on."""
    assert callable(function)
    assert function(torch.randn(4, 30, 15)).mT.is_contiguous()
    assert function(torch.randn(4, 30, 16)).is_contiguous()
    assert function(torch.randn(5)).is_contiguous()


def test_a_transposed_tensor_is_taken_as_it_is() -> None:
    logits = torch.randn(4, 3, 30).mT
    torch.testing.assert_close(softmax(logits), torch.softmax(logits, dim=-1))
    assert softmax(logits).mT.is_contiguous()
