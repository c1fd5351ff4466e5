// Members of a struct by name: how parameters, variables and options of an environment are reached
// from a language that does not know the struct.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

namespace envfleet {

using Value = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                           std::vector<double>>;
using NamedValues = std::vector<std::pair<std::string, Value>>;

// A number that is an integer to Python where it was given one, and so is what follows from it.
struct PythonNumber {
    static constexpr int64_t largest = int64_t{1} << 53;  // beyond it floats leave integers out

    double value = 0;
    bool is_integer = false;
};

template <class Owner, class T>
struct Field {
    const char* name;
    T Owner::* member;
};

template <class Owner, class T>
constexpr Field<Owner, T> field(const char* name, T Owner::* member) {
    return {name, member};
}

[[noreturn]] inline void refuse_value(std::string_view name, const char* expected) {
    throw std::invalid_argument(std::string(name) + " must be " + expected + ".");
}

inline void assign(std::string_view name, const Value& value, bool& target) {
    if (!std::holds_alternative<bool>(value)) refuse_value(name, "a bool");
    target = std::get<bool>(value);
}
inline void assign(std::string_view name, const Value& value, int64_t& target) {
    if (!std::holds_alternative<int64_t>(value)) refuse_value(name, "an integer");
    target = std::get<int64_t>(value);
}
inline void assign(std::string_view name, const Value& value, double& target) {
    if (const auto* number = std::get_if<double>(&value)) {
        target = *number;
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
        target = static_cast<double>(*integer);
    } else {
        refuse_value(name, "a number");
    }
}
inline void assign(std::string_view name, const Value& value, PythonNumber& target) {
    const auto* integer = std::get_if<int64_t>(&value);
    if (integer != nullptr && (*integer > target.largest || *integer < -target.largest)) {
        refuse_value(name, "a number from -2**53 to 2**53 if it is an integer");
    }
    assign(name, value, target.value);
    target.is_integer = integer != nullptr;
}
inline void assign(std::string_view name, const Value& value, std::string& target) {
    if (!std::holds_alternative<std::string>(value)) refuse_value(name, "a string");
    target = std::get<std::string>(value);
}
inline void assign(std::string_view name, const Value& value, std::vector<int64_t>& target) {
    if (!std::holds_alternative<std::vector<int64_t>>(value)) refuse_value(name, "integers");
    target = std::get<std::vector<int64_t>>(value);
}
inline void assign(std::string_view name, const Value& value, std::vector<double>& target) {
    if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
        target = *numbers;
    } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
        target.assign(integers->begin(), integers->end());
    } else {
        refuse_value(name, "a sequence of numbers");
    }
}
template <size_t size>
void assign(std::string_view name, const Value& value, std::array<double, size>& target) {
    std::vector<double> numbers;
    assign(name, value, numbers);
    if (numbers.size() != size) {
        const std::string expected = "a sequence of " + std::to_string(size) + " numbers";
        refuse_value(name, expected.c_str());
    }
    std::copy(numbers.begin(), numbers.end(), target.begin());
}
template <class T>
void assign(std::string_view name, const Value& value, std::optional<T>& target) {
    if (std::holds_alternative<std::monostate>(value)) {
        target.reset();
    } else {
        T inner{};
        assign(name, value, inner);
        target = inner;
    }
}

inline Value as_value(bool value) { return value; }
inline Value as_value(int64_t value) { return value; }
inline Value as_value(double value) { return value; }
inline Value as_value(const PythonNumber& number) {
    if (number.is_integer) return static_cast<int64_t>(number.value);
    return number.value;
}
inline Value as_value(const std::string& value) { return value; }
inline Value as_value(const std::vector<int64_t>& value) { return value; }
inline Value as_value(const std::vector<double>& value) { return value; }
template <size_t size>
Value as_value(const std::array<double, size>& value) {
    return std::vector<double>(value.begin(), value.end());
}
template <class T>
Value as_value(const std::optional<T>& value) {
    return value ? as_value(*value) : Value{};
}

template <class Fields, class Owner>
std::optional<Value> get_field(const Fields& fields, const Owner& owner, std::string_view name) {
    std::optional<Value> found;
    std::apply(
        [&](const auto&... each) {
            ((each.name == name ? void(found = as_value(owner.*each.member)) : void()), ...);
        },
        fields);
    return found;
}

// False: no field of this name.
template <class Fields, class Owner>
bool set_field(const Fields& fields, Owner& owner, std::string_view name, const Value& value) {
    bool found = false;
    std::apply(
        [&](const auto&... each) {
            ((each.name == name ? (assign(name, value, owner.*each.member), void(found = true))
                                : void()),
             ...);
        },
        fields);
    return found;
}

template <class Fields>
std::vector<std::string> field_names(const Fields& fields) {
    return std::apply([](const auto&... each) { return std::vector<std::string>{each.name...}; },
                      fields);
}

}  // namespace envfleet
