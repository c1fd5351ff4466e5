// envfleet._native: pools of compiled environments as Python sees them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/catalogue.h"
#include "bindings/foreign.h"
#include "bindings/mujoco.h"
#include "bindings/pool.h"
#include "bindings/values.h"
#include "bindings/xla.h"
#include "engine/numpy_math.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using namespace envfleet;

// NumPy's compiled loop of a function from `type` to the same type.
UfuncLoop numpy_loop(const char* name, int type) {
    const nb::object function = nb::module_::import_("numpy").attr(name);
    const auto* ufunc = reinterpret_cast<const PyUFuncObject*>(function.ptr());
    for (int i = 0; i < ufunc->ntypes; ++i) {
        if (ufunc->types[2 * i] == type && ufunc->types[2 * i + 1] == type) {
            return {ufunc->functions[i],
                    ufunc->data != nullptr ? const_cast<void*>(ufunc->data[i]) : nullptr};
        }
    }
    throw std::runtime_error(std::string("NumPy has no loop of this type: ") + name);
}

DotProduct numpy_dot() {
    PyArray_Descr* type = PyArray_DescrFromType(NPY_DOUBLE);
    const auto function = PyDataType_GetArrFuncs(type)->dotfunc;
    Py_DECREF(type);
    return {function};
}

const Catalogue& catalogue() {
    static const Catalogue all = [] {
        Catalogue fresh;
        add_classic_control(fresh);
        add_foreign(fresh);
        add_mujoco(fresh);
        add_toy_text(fresh);
#ifdef ENVFLEET_BOX2D
        add_box2d(fresh);
#endif
        return fresh;
    }();
    return all;
}

const Kind& kind_named(const std::string& name) {
    const auto found = catalogue().find(name);
    if (found == catalogue().end()) throw nb::key_error(name.c_str());
    return found->second;
}

nb::list info_columns(const std::string& name, nb::handle parameters) {
    nb::list columns;
    for (const InfoColumn& column : kind_named(name).infos(named_values_from(parameters))) {
        nb::list shape;
        for (const size_t length : column.shape) shape.append(length);
        columns.append(nb::make_tuple(column.name, column.dtype, nb::tuple(shape)));
    }
    return columns;
}

std::vector<std::string> kinds() {
    std::vector<std::string> names;
    for (const auto& [name, kind] : catalogue()) names.push_back(name);
    return names;
}

nb::dict xla_handlers() {
    nb::dict handlers;
    handlers["envfleet_step"] = nb::capsule(reinterpret_cast<void*>(&XlaFleet::step));
    handlers["envfleet_reset"] = nb::capsule(reinterpret_cast<void*>(&XlaFleet::reset));
    return handlers;
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "Compiled environments.";
    nb::set_leak_warnings(false);  // a fleet that lives until the interpreter ends is no leak
    import_numpy();
    numpy_math = {numpy_loop("sin", NPY_DOUBLE), numpy_loop("cos", NPY_DOUBLE),
                  numpy_loop("sin", NPY_FLOAT), numpy_loop("cos", NPY_FLOAT), numpy_dot()};
    bind_mujoco(m);
    bind_foreign(m);

    m.def("kinds", &kinds, "The names of all environments.");
    m.def("info_columns", &info_columns, "kind"_a, "parameters"_a,
          "Name, dtype and shape of each key of the infos.");
    m.def(
        "make",
        [](const std::string& kind, const nb::list& parameters, const PoolArrays& arrays,
           uint8_t autoreset, std::vector<int64_t> time_limits, unsigned threads, bool adaptive,
           nb::object kept) {
            return new PyPool(kind_named(kind), parameters, arrays, autoreset,
                              std::move(time_limits), threads, adaptive, std::move(kept));
        },
        "kind"_a, "parameters"_a, "arrays"_a, "autoreset"_a, "time_limits"_a, "threads"_a,
        "adaptive"_a, "kept"_a.none());

    nb::class_<PoolArrays>(m, "PoolArrays", "Where a pool reads and writes.")
        .def(nb::init<nb::list, nb::list, nb::list, nb::list, nb::object, nb::object, nb::object,
                      nb::object, nb::object, nb::object, nb::object, nb::object, nb::object>(),
             "observations"_a, "final_observations"_a, "infos"_a, "final_infos"_a, "actions"_a,
             "rewards"_a, "terminated"_a, "truncated"_a, "finished"_a, "turns"_a, "out"_a,
             "batch_observations"_a.none(), "final_observation"_a.none());

    nb::class_<RowPolicy>(m, "RowPolicy", "Chooses actions in compiled code, row by row.");
    nb::class_<PyRollout>(m, "Rollout", "Many steps of a pool with a policy.")
        .def_prop_ro("made", &PyRollout::made, "Steps that all environments have made.")
        .def("final_observations", &PyRollout::final_observations)
        .def("final_infos", &PyRollout::final_infos);

    nb::class_<PyPool>(m, "Pool", "Environments of one kind, stepped together.")
        .def("step", &PyPool::step, "actions"_a.none(), "copy"_a,
             "What VectorEnv.step returns; None if the call needs a closer look, False if an "
             "environment failed.")
        .def(
            "begin_rollout",
            [](const PyPool& pool, nb::object policy, nb::object observations, nb::object actions,
               nb::object rewards, nb::object terminated, nb::object truncated, nb::object valid,
               const std::vector<std::string>& info_names) {
                const PyRolloutArrays arrays{Column(observations), Column(actions),
                                             Column(rewards),      Column(terminated),
                                             Column(truncated),    Column(valid)};
                return pool.begin_rollout(std::move(policy), arrays, info_names);
            },
            "policy"_a, "observations"_a, "actions"_a, "rewards"_a, "terminated"_a, "truncated"_a,
            "valid"_a, "info_names"_a, nb::keep_alive<0, 1>(),
            "A rollout that is kept in these arrays, [steps, environments, ...] each; "
            "observations are of one step more.")
        .def("roll_out", &PyPool::roll_out, "rollout"_a,
             "Takes it further. True once it is over; False if planned episodes have run out.")
        .def("step_stored", &PyPool::step_stored, "Steps with the actions in the actions array.")
        .def("reset", &PyPool::reset, "mask"_a, "options"_a)
        .def("send", &PyPool::send, "actions"_a.none(), "env_ids"_a.none(),
             "Sets environments to work; False, and nothing happens, if the call needs a closer "
             "look.")
        .def("recv", &PyPool::recv, "most"_a,
             "What VectorEnv.step returns, of the first that are done; None if the call needs a "
             "closer look, False if an environment failed.")
        .def("send_stored", &PyPool::send_stored, "env_ids"_a,
             "Sets environments to work with their actions in the actions array.")
        .def("send_resets", &PyPool::send_resets, "env_ids"_a, "options"_a,
             "Has some environments reset; options for every environment of the pool, or none.")
        .def("receive", &PyPool::receive, "count"_a, "timeout"_a.none(),
             "The first that are done; None if that takes longer than so many seconds.")
        .def(
            "recall", &PyPool::recall, "timeout"_a.none(),
            "Waits for those at work and forgets all that was sent; returns those that take longer "
            "than so many seconds and go on.")
        .def("infos_of", &PyPool::infos_of, "env_ids"_a)
        .def("failure_among", &PyPool::failure_among, "env_ids"_a)
        .def("check_options", &PyPool::check_options, "options"_a)
        .def("seed", &PyPool::seed, "env"_a, "seed"_a)
        .def("plan_episode", &PyPool::plan_episode, "env"_a, "parameters"_a, "time_limit"_a,
             "seed"_a.none(), "What the episode after those planned already is to be played with.")
        .def("forget_plans", &PyPool::forget_plans, "env"_a)
        .def("plans", &PyPool::plans, "env"_a, "How many episodes are planned.")
        .def("lacks_plans", &PyPool::lacks_plans, "Whether some environment has none.")
        .def("adopt_plan", &PyPool::adopt_plan, "env"_a, "Begins a planned episode, but for reset.")
        .def("infos", &PyPool::infos, "The infos of the last turn.")
        .def("failure", &PyPool::failure, "(env, message) of the first that failed, or None.")
        .def("take_quick_failure", &PyPool::take_quick_failure,
             "The same of the last step() or recv() that returned False.")
        .def("share", &PyPool::share, "exclusive"_a,
             "From now on step(), send() and recv() ask this one whether somebody is inside.")
        .def_prop_rw(
            "ready", [](const PyPool& pool) { return pool.ready.load(); },
            [](PyPool& pool, bool ready) { pool.ready = ready; }, "Whether step() may step.")
        .def("rng_state", &PyPool::rng_state, "env"_a)
        .def("parameter_names", &PyPool::parameter_names)
        .def("variable_names", &PyPool::variable_names)
        .def("get", &PyPool::get, "env"_a, "name"_a)
        .def("set", &PyPool::set, "env"_a, "name"_a, "value"_a.none())
        .def("set_everywhere", &PyPool::set_everywhere, "name"_a, "value"_a.none())
        .def("elapsed", &PyPool::elapsed, "env"_a)
        .def("time_limit", &PyPool::time_limit, "env"_a)
        .def("set_time_limit", &PyPool::set_time_limit, "env"_a, "steps"_a)
        .def("snapshot", &PyPool::snapshot, "env"_a)
        .def("restore", &PyPool::restore, "env"_a, "snapshot"_a);

    nb::class_<XlaFleet>(m, "XlaFleet", "A pool as compiled functions of JAX see it.")
        .def(nb::init<nb::object>(), "pool"_a)
        .def("handle", &XlaFleet::handle, "What the next call has to be given.")
        .def("close", &XlaFleet::close, "seconds"_a,
             "No call makes a turn any more; False if one is under way that takes longer.");
    m.def("xla_handlers", &xla_handlers, "The functions that XLA calls, as capsules, by name.");
}
