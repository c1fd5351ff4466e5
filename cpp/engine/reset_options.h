// The options of a reset, from names and values.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/environment.h"
#include "engine/fields.h"

namespace envfleet {

// The options of an environment that has none.
struct NoOptions {};

template <class Env>
auto default_options() {
    if constexpr (HasOptions<Env>) {
        return typename Env::ResetOptions{};
    } else {
        return NoOptions{};
    }
}

template <class Env>
using OptionsOf = decltype(default_options<Env>());

template <class Env>
void set_option(OptionsOf<Env>& options, const std::string& name, const Value& value) {
    std::string known = "none";
    if constexpr (HasOptions<Env>) {
        const auto fields = Env::ResetOptions::fields();
        if (set_field(fields, options, name, value)) return;
        known.clear();
        for (const auto& each : field_names(fields)) known += (known.empty() ? "" : ", ") + each;
    }
    throw std::invalid_argument("unknown reset option '" + name +
                                "'; this environment knows: " + known + ".");
}

// One for every environment, or none at all; std::invalid_argument says which cannot be.
template <class Env>
std::vector<OptionsOf<Env>> parsed_options(const std::vector<NamedValues>& options) {
    std::vector<OptionsOf<Env>> parsed(options.size());
    for (size_t env = 0; env < options.size(); ++env) {
        for (const auto& [name, value] : options[env]) set_option<Env>(parsed[env], name, value);
        if constexpr (HasOptions<Env>) parsed[env].check();
    }
    return parsed;
}

}  // namespace envfleet
