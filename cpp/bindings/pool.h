// A pool behind checks: nothing Python passes in can crash it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "bindings/catalogue.h"
#include "bindings/infos.h"
#include "bindings/values.h"
#include "engine/waiting.h"

namespace envfleet {

namespace nb = nanobind;

inline std::vector<Column> columns_of(const nb::list& arrays) {
    std::vector<Column> columns;
    for (nb::handle array : arrays) columns.emplace_back(array);
    return columns;
}

// The arrays of a pool, one row an environment; and how Python puts observations together that are
// more than one array.
struct PoolArrays {
    PoolArrays(nb::list observations, nb::list final_observations, nb::list infos,
               nb::list final_infos, nb::object actions, nb::object rewards, nb::object terminated,
               nb::object truncated, nb::object finished, nb::object turns,
               nb::object batch_observations, nb::object final_observation)
        : observations(columns_of(observations)),
          final_observations(columns_of(final_observations)),
          infos(columns_of(infos)),
          final_infos(columns_of(final_infos)),
          actions(actions),
          rewards(rewards),
          terminated(terminated),
          truncated(truncated),
          finished(finished),
          turns(turns),
          batch_observations(batch_observations),
          final_observation(final_observation) {}

    Buffers buffers() const {
        auto leaves = [](const std::vector<Column>& columns) {
            std::vector<Leaf> result;
            for (const Column& column : columns) result.push_back(column.leaf());
            return result;
        };
        auto bytes = [](const Column& column) { return reinterpret_cast<uint8_t*>(column.data()); };
        return {leaves(observations),
                leaves(final_observations),
                leaves(infos),
                leaves(final_infos),
                reinterpret_cast<double*>(rewards.data()),
                bytes(terminated),
                bytes(truncated),
                bytes(finished),
                reinterpret_cast<Turn*>(turns.data())};
    }

    std::vector<Column> observations, final_observations, infos, final_infos;
    Column actions, rewards, terminated, truncated, finished, turns;
    nb::object batch_observations, final_observation;
};

class PyPool {
  public:
    PyPool(const Kind& kind, const nb::list& parameters, const PoolArrays& arrays,
           uint8_t autoreset, std::vector<int64_t> time_limits, unsigned threads, bool adaptive)
        : arrays_(arrays), autoreset_(static_cast<Autoreset>(autoreset)) {
        std::vector<NamedValues> values;
        for (nb::handle each : parameters) values.push_back(named_values_from(each));
        const size_t rows = arrays.rewards.rows();
        if (values.empty() || (values.size() != 1 && values.size() != rows)) {
            throw nb::value_error("parameters: expected one dict, or one an environment");
        }
        if (time_limits.size() != rows) throw nb::value_error("expected a time limit each");
        infos_ = std::make_unique<InfoColumns>(kind.infos(values.front()), arrays.infos,
                                               arrays.final_infos);
        pool_ = kind.make(
            {rows, autoreset_, std::move(time_limits), threads, adaptive, arrays.buffers()},
            values);
        check_sizes();
    }

    nb::object step(nb::handle actions, bool copy) {
        const std::byte* data = ready && !pool_->lacks_plans() ? plain_actions(actions) : nullptr;
        if (data == nullptr) return nb::none();
        const bool copies_only = copy && arrays_.batch_observations.is_none();
        Fresh rewards(arrays_.rewards), terminated(arrays_.terminated),
            truncated(arrays_.truncated);
        std::optional<Fresh> only;
        std::array twins{rewards.twin, terminated.twin, truncated.twin, Twin{}};
        if (copies_only) twins.back() = only.emplace(arrays_.observations.front()).twin;
        run([&] { pool_->step(data, std::span(twins).first(copies_only ? 4 : 3)); });
        if (pool_->failure()) {
            ready = false;
            return nb::bool_(false);
        }
        return nb::make_tuple(only ? only->column.object() : observations(copy),
                              rewards.column.object(), terminated.column.object(),
                              truncated.column.object(), infos());
    }

    void step_stored() {
        run([&] { pool_->step(arrays_.actions.data(), {}); });
    }

    void reset(const nb::object& mask, const nb::list& options) {
        const Column rows(mask);
        if (rows.rows() != num_envs() || rows.row_bytes() != 1) {
            throw nb::value_error("mask: expected one bool an environment");
        }
        const std::vector<NamedValues> values = parsed(options);
        const auto* bytes = reinterpret_cast<const uint8_t*>(rows.data());
        run([&] { pool_->reset({bytes, num_envs()}, values); });
    }

    void serve(const nb::object& tickets, const nb::list& options) {
        const Column rows(tickets);
        if (rows.rows() != num_envs() || rows.row_bytes() != 1) {
            throw nb::value_error("tickets: expected one byte an environment");
        }
        const std::vector<NamedValues> values = parsed(options);
        const auto* first = reinterpret_cast<const Ticket*>(rows.data());
        run([&] { pool_->serve({first, num_envs()}, arrays_.actions.data(), values); });
    }

    void check_options(const nb::list& options) const { pool_->check_options(parsed(options)); }

    // Any non-negative integer, of any size.
    void seed(size_t env, const nb::int_& seed) {
        const size_t bits = nb::cast<size_t>(seed.attr("bit_length")());
        const size_t words = std::max<size_t>(1, (bits + 31) / 32);
        const nb::bytes bytes = nb::cast<nb::bytes>(seed.attr("to_bytes")(4 * words, "little"));
        std::vector<uint32_t> entropy(words);
        std::memcpy(entropy.data(), bytes.c_str(), 4 * words);
        pool_->rng(checked(env)).seed(entropy);
    }

    void plan_episode(size_t env, nb::handle parameters, int64_t time_limit,
                      std::optional<uint32_t> seed) {
        pool_->plan_episode(checked(env), {named_values_from(parameters), time_limit, seed});
    }
    void forget_plans(size_t env) { pool_->forget_plans(checked(env)); }
    size_t plans(size_t env) const { return pool_->plans(checked(env)); }
    bool lacks_plans() const { return pool_->lacks_plans(); }
    void adopt_plan(size_t env) {
        if (pool_->plans(checked(env)) == 0) throw nb::value_error("no episode was planned");
        pool_->adopt_plan(env);
    }

    nb::dict infos() const {
        nb::dict infos;
        const auto* turns = reinterpret_cast<const Turn*>(arrays_.turns.data());
        if (autoreset_ == Autoreset::same_step) add_final(infos, turns);
        if (!infos_->empty()) infos_->add_current(infos, turns, num_envs());
        return infos;
    }

    nb::object failure() const {
        const auto failure = pool_->failure();
        if (!failure) return nb::none();
        return nb::make_tuple(failure->env, failure->message);
    }

    nb::object rng_state(size_t env) {
        const Rng& rng = pool_->rng(checked(env));
        auto halves = [](Rng::Wide wide) {
            return nb::make_tuple(static_cast<uint64_t>(wide >> 64), static_cast<uint64_t>(wide));
        };
        return nb::make_tuple(halves(rng.state()), halves(rng.increment()),
                              static_cast<int>(rng.has_half()), rng.half());
    }

    std::vector<std::string> parameter_names() const { return pool_->parameter_names(); }
    std::vector<std::string> variable_names() const { return pool_->variable_names(); }

    nb::object get(size_t env, const std::string& name) const {
        const auto value = pool_->get(checked(env), name);
        if (!value) throw nb::attribute_error(name.c_str());
        return object_from(*value);
    }
    void set(size_t env, const std::string& name, nb::handle value) {
        if (!pool_->set(checked(env), name, value_from(value))) {
            throw nb::attribute_error(name.c_str());
        }
    }
    void set_everywhere(const std::string& name, nb::handle value) {
        if (!pool_->set_everywhere(name, value_from(value))) {
            throw nb::attribute_error(name.c_str());
        }
    }

    int64_t elapsed(size_t env) { return pool_->elapsed(checked(env)); }
    int64_t time_limit(size_t env) { return pool_->time_limit(checked(env)); }
    void set_time_limit(size_t env, int64_t steps) { pool_->time_limit(checked(env)) = steps; }

    nb::bytes snapshot(size_t env) const {
        const auto bytes = pool_->snapshot(checked(env));
        return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    void restore(size_t env, const nb::bytes& snapshot) {
        const std::span bytes(snapshot.c_str(), snapshot.size());
        pool_->restore(checked(env), std::as_bytes(bytes));
    }

    bool ready = false;

  private:
    // An array to be handed out, which the threads fill while they step.
    struct Fresh {
        explicit Fresh(const Column& like)
            : column(like.unwritten()), twin{like.data(), column.data(), like.row_bytes()} {}

        Column column;
        Twin twin;
    };

    size_t num_envs() const { return arrays_.rewards.rows(); }
    size_t checked(size_t env) const {
        if (env >= num_envs()) throw nb::index_error("no such environment");
        return env;
    }

    std::vector<NamedValues> parsed(const nb::list& options) const {
        std::vector<NamedValues> values;
        for (nb::handle each : options) values.push_back(named_values_from(each));
        if (!values.empty() && values.size() != num_envs()) {
            throw nb::value_error("options: expected one dict an environment");
        }
        return values;
    }

    void check_sizes() const {
        if (pool_->action_bytes() != arrays_.actions.row_bytes()) {
            throw nb::value_error("the actions array does not fit this environment");
        }
        const std::vector<size_t> wanted = pool_->observation_bytes();
        for (const auto* columns : {&arrays_.observations, &arrays_.final_observations}) {
            bool fit = columns->size() == wanted.size();
            for (size_t i = 0; fit && i < wanted.size(); ++i) {
                fit = (*columns)[i].row_bytes() == wanted[i];
            }
            if (!fit) throw nb::value_error("the observation arrays do not fit this environment");
        }
    }

    // To get the GIL back can take milliseconds where other threads run Python: a turn of a few
    // microseconds does not give it away.
    template <class Work>
    void run(const Work& work) {
        constexpr Nanoseconds brief = 10'000;
        const bool timed = turns_++ % 16 == 0;
        const Nanoseconds start = timed ? now() : 0;
        if (is_long_) {
            nb::gil_scoped_release no_gil;
            work();
        } else {
            work();
        }
        if (timed) is_long_ = now() - start > brief;
    }

    // The actions where they lie, if they are exactly what the environments take.
    const std::byte* plain_actions(nb::handle actions) const {
        if (!PyArray_Check(actions.ptr())) return nullptr;
        auto* array = reinterpret_cast<PyArrayObject*>(actions.ptr());
        PyArrayObject* wanted = arrays_.actions.numpy();
        if (PyArray_TYPE(array) != PyArray_TYPE(wanted) || !PyArray_ISCARRAY_RO(array) ||
            PyArray_NDIM(array) != PyArray_NDIM(wanted) ||
            !PyArray_CompareLists(PyArray_DIMS(array), PyArray_DIMS(wanted),
                                  PyArray_NDIM(wanted))) {
            return nullptr;
        }
        const auto* data = static_cast<const std::byte*>(PyArray_DATA(array));
        if (autoreset_ == Autoreset::disabled && any_finished()) return nullptr;
        return all_allowed(data) ? data : nullptr;
    }

    bool any_finished() const {
        const auto* finished = arrays_.finished.data();
        return std::any_of(finished, finished + num_envs(),
                           [](auto f) { return f != std::byte{}; });
    }

    bool all_allowed(const std::byte* actions) const {
        const std::vector<int64_t>& limits = pool_->action_limits();
        const auto* numbers = reinterpret_cast<const int64_t*>(actions);
        // A stride known to be one lets the compiler look at many numbers at once.
        constexpr std::integral_constant<size_t, 1> one;
        if (limits.size() == 1) return all_below(limits.front(), numbers, one);
        for (size_t place = 0; place < limits.size(); ++place) {
            if (!all_below(limits[place], numbers + place, limits.size())) return false;
        }
        return true;
    }

    template <class Stride>
    bool all_below(int64_t limit, const int64_t* numbers, Stride stride) const {
        bool below = true;
        for (size_t i = 0; i < num_envs(); ++i) {
            below &= static_cast<uint64_t>(numbers[i * stride]) < static_cast<uint64_t>(limit);
        }
        return below;
    }

    nb::object observations(bool copy) const {
        if (!arrays_.batch_observations.is_none()) return arrays_.batch_observations(copy);
        const Column& only = arrays_.observations.front();
        return copy ? only.copy() : only.object();
    }

    void add_final(nb::dict& infos, const Turn* turns) const {
        std::vector<uint8_t> ended(num_envs());
        for (size_t i = 0; i < ended.size(); ++i) ended[i] = turns[i] == Turn::ended_and_reset;
        if (std::find(ended.begin(), ended.end(), 1) == ended.end()) return;
        InfoColumns::add(infos, "final_obs", final_observations(ended), ended);
        InfoColumns::add(infos, "final_info", infos_->final_infos(ended), ended);
    }

    nb::object final_observations(const std::vector<uint8_t>& ended) const {
        npy_intp size = static_cast<npy_intp>(ended.size());
        nb::object array = Column::checked(PyArray_SimpleNew(1, &size, NPY_OBJECT));
        auto** slots =
            static_cast<PyObject**>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
        for (size_t env = 0; env < ended.size(); ++env) {
            nb::object value = ended[env] ? final_observation(env) : nb::none();
            Py_XDECREF(slots[env]);
            slots[env] = value.release().ptr();
        }
        return array;
    }

    nb::object final_observation(size_t env) const {
        if (!arrays_.final_observation.is_none()) return arrays_.final_observation(env);
        return arrays_.final_observations.front().row(env);
    }

    PoolArrays arrays_;
    Autoreset autoreset_;
    std::unique_ptr<InfoColumns> infos_;
    std::unique_ptr<AnyPool> pool_;
    uint64_t turns_ = 0;
    bool is_long_ = false;
};

}  // namespace envfleet
