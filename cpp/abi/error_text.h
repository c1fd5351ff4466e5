// What a library says about an error, as text that Python can show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace envfleet {

// How many bytes the first character of a UTF-8 text has; 0 if they are none.
inline size_t character_bytes(std::string_view text) {
    const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
    const uint8_t first = byte(0);
    if (first < 0x80) return 1;
    const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
    for (size_t i = 1; i < size; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return 0;
    }
    // Neither longer than need be, nor half of a pair, nor beyond the last character.
    if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
    if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
    return size;
}

// The message of a library for this code, which may be missing, empty, endless or in no encoding:
// bytes that are no UTF-8 are shown as \\xNN.
inline std::string error_text(const char* message, int32_t code) {
    constexpr size_t longest = 4000;
    constexpr const char* digits = "0123456789abcdef";
    const std::string number = "error " + std::to_string(code);
    if (message == nullptr) return number;
    std::string_view rest(message, strnlen(message, longest));
    if (rest.find_first_not_of(" \t\r\n") == rest.npos) return number + " (without a message)";
    std::string text;
    while (!rest.empty()) {
        const size_t size = character_bytes(rest);
        if (size > 0) {
            text += rest.substr(0, size);
        } else {
            const auto byte = static_cast<uint8_t>(rest.front());
            text += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
        }
        rest.remove_prefix(size > 0 ? size : 1);
    }
    return text;
}

}  // namespace envfleet
