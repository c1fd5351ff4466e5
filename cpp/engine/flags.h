// Which of many flags are set.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace envfleet {

// Calls visit(number) for each flag that is set. Eight at a look: few are set, and asking each
// would be one guess of the processor each. Inlined, since the compiler only then sees that little
// is to be done.
template <size_t count, class Visit>
[[gnu::always_inline]] inline void for_each_set(const std::array<uint8_t, count>& flags,
                                                Visit visit) {
    for (size_t start = 0; start < count; start += 8) {
        uint64_t word;
        std::memcpy(&word, &flags[start], sizeof word);
        if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
        for (; word != 0; word &= word - 1) {
            visit(start + static_cast<size_t>(std::countr_zero(word)) / 8);
        }
    }
}

}  // namespace envfleet
