// Shared memory in a forked copy of a process.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

namespace envfleet {

namespace nb = nanobind;

using Pages = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Count = nb::ndarray<uint64_t, nb::shape<1>, nb::c_contig, nb::device::cpu>;

// Puts a copy of some memory, which only this process has, in its place: from now on what others
// write there is not seen here, nor the other way round.
inline void make_private(Pages memory) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t size = memory.size();
    if (reinterpret_cast<uintptr_t>(memory.data()) % page != 0 || size % page != 0) {
        throw nb::value_error("expected whole pages of memory");
    }
    if (size == 0) return;
    void* copy = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    std::memcpy(copy, memory.data(), size);
    void* moved = mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, memory.data());
    if (moved == MAP_FAILED) {
        const int error = errno;
        munmap(copy, size);
        throw std::system_error(error, std::generic_category(), "mremap");
    }
}

inline void count_up(Count cell) {
    std::atomic_ref<uint64_t>(*cell.data()).fetch_add(1, std::memory_order_seq_cst);
}

}  // namespace envfleet
