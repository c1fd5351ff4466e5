#include "bindings/foreign.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "abi/error_text.h"
#include "abi/foreign.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace envfleet {

namespace {

template <class Function>
uintptr_t address(Function* function) {
    return reinterpret_cast<uintptr_t>(function);
}

nb::dict random_functions() {
    nb::dict addresses;
    addresses["uniform"] = address(&ForeignRandom::uniform);
    addresses["normal"] = address(&ForeignRandom::normal);
    addresses["integers"] = address(&ForeignRandom::integers);
    return addresses;
}

std::string text_of_error(std::optional<nb::bytes> message, int32_t code) {
    return error_text(message ? message->c_str() : nullptr, code);
}

nb::dict abi_sizes() {
    nb::dict sizes;
    sizes["envfleet_random"] = sizeof(envfleet_random);
    sizes["envfleet_space"] = sizeof(envfleet_space);
    sizes["envfleet_parameter"] = sizeof(envfleet_parameter);
    sizes["envfleet_outcome"] = sizeof(envfleet_outcome);
    sizes["envfleet_environment"] = sizeof(envfleet_environment);
    return sizes;
}

}  // namespace

void add_foreign(Catalogue& catalogue) { catalogue["Foreign"] = kind<Foreign>(); }

void bind_foreign(nb::module_& m) {
    m.def("random_functions", &random_functions,
          "The addresses of the functions in an envfleet_random.");
    m.def("error_text", &text_of_error, "message"_a.none(), "code"_a,
          "What a library says about an error, as text.");
    m.def("abi_sizes", &abi_sizes, "The bytes of each struct in envfleet_env.h.");
}

}  // namespace envfleet
