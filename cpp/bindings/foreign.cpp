#include "bindings/foreign.h"

#include "abi/foreign.h"

namespace nb = nanobind;

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
    m.def("abi_sizes", &abi_sizes, "The bytes of each struct in envfleet_env.h.");
}

}  // namespace envfleet
