"""The slot pool, the request map and the allocator."""

import pytest
import torch

from engine.models.kv_pool import KVPool, PoolExhausted, ReqToTokenPool, SlotAllocator
from engine.models.tiny import random_decoder


@pytest.fixture
def pool():
    """Slot s of layer n holds 100 n + s in its keys and the negative of it in its values."""
    pool = KVPool(random_decoder("llama", seed=0).config, num_slots=8)
    for layer in range(2):
        numbers = (100 * layer + torch.arange(8.0))[:, None, None].expand(8, 2, 8)
        pool.store(layer, torch.arange(8), numbers, -numbers)
    return pool


def contents(pool, layer):
    assert torch.equal(pool.k[layer], -pool.v[layer])
    return pool.k[layer][:, 1, 3].tolist()


def test_store_writes_the_named_slots_of_one_layer(pool):
    rows = torch.full((2, 2, 8), 7.0)
    pool.store(1, torch.tensor([5, 2]), rows, -rows)
    assert contents(pool, 0) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert contents(pool, 1) == [100, 101, 7, 103, 104, 7, 106, 107]


@pytest.mark.parametrize(
    ("target", "source", "expected"),
    [
        ([1, 2, 3], [2, 3, 4], [0, 2, 3, 4, 4, 5, 6, 7]),
        ([2, 3, 4], [1, 2, 3], [0, 1, 1, 2, 3, 5, 6, 7]),
        ([1, 2], [2, 1], [0, 2, 1, 3, 4, 5, 6, 7]),
        ([6], [1], [0, 1, 2, 3, 4, 5, 1, 7]),
        ([], [], [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_move_reads_all_sources_before_it_writes(pool, target, source, expected):
    pool.move(torch.tensor(target, dtype=torch.int64), torch.tensor(source, dtype=torch.int64))
    assert contents(pool, 0) == expected
    assert contents(pool, 1) == [100 + number for number in expected]


def test_move_refuses_unequal_lengths(pool):
    with pytest.raises(ValueError, match=r"found \[1\] and \[2\]"):
        pool.move(torch.tensor([1]), torch.tensor([1, 2]))


def test_pool_has_one_tensor_a_layer():
    pool = KVPool(random_decoder("qwen3", seed=0).config, num_slots=5, dtype=torch.bfloat16)
    assert [tuple(k.shape) for k in pool.k] == [(5, 2, 8)] * 2
    assert {tensor.dtype for tensor in (*pool.k, *pool.v)} == {torch.bfloat16}


def test_allocator_gives_the_lowest_free_slots_and_never_slot_0():
    slots = SlotAllocator(8)
    assert slots.available == 7
    assert slots.alloc(4).tolist() == [1, 2, 3, 4]
    slots.free(torch.tensor([3, 1]))
    taken = slots.alloc(3)
    assert taken.tolist() == [1, 3, 5]
    assert taken.dtype is torch.int64
    assert slots.alloc(0).tolist() == []
    assert slots.available == 2


def test_exhaustion_names_both_numbers_and_takes_nothing():
    slots = SlotAllocator(4)
    slots.alloc(1)
    with pytest.raises(PoolExhausted, match="asked for 3, available 2"):
        slots.alloc(3)
    assert slots.alloc(2).tolist() == [2, 3]
    with pytest.raises(ValueError, match="at least 0, found -1"):
        slots.alloc(-1)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([2, 3], r"already free: \[3\]"),
        ([1, 1], r"each once, found \[1, 1\]"),
        ([0], "expected 1 … 5, found 0"),
        ([6], "expected 1 … 5, found 6"),
    ],
)
def test_wrong_frees_are_refused_and_free_nothing(numbers, message):
    slots = SlotAllocator(6)
    slots.alloc(2)
    with pytest.raises(ValueError, match=message):
        slots.free(torch.tensor(numbers))
    assert slots.available == 3


def test_request_rows_skip_0_and_come_back_clean():
    requests = ReqToTokenPool(max_requests=3, max_context=5)
    assert requests.req_to_token.dtype is torch.int32
    assert (requests.alloc(), requests.alloc()) == (1, 2)
    with pytest.raises(PoolExhausted, match="asked for 1, available 0"):
        requests.alloc()
    requests.req_to_token[1, :3] = torch.tensor([9, 8, 7], dtype=torch.int32)
    requests.free(1)
    with pytest.raises(ValueError, match="already free"):
        requests.free(1)
    assert requests.alloc() == 1
    assert requests.req_to_token[1].tolist() == [0] * 5
