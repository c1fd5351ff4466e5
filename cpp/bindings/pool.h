// A pool behind checks: nothing Python passes in can crash it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
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
               nb::object truncated, nb::object finished, nb::object turns, nb::object out,
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
          out(out),
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
    Column out;  // who was sent and not received
    nb::object batch_observations, final_observation;
};

class PyPool {
  public:
    // `kept`: what the environments use by address. The garbage collector is not told that it is
    // held: it would empty such objects in any order, also before the threads have ended. So
    // neither it nor the functions in `arrays` may refer back to the pool.
    PyPool(const Kind& kind, const nb::list& parameters, const PoolArrays& arrays,
           uint8_t autoreset, std::vector<int64_t> time_limits, unsigned threads, bool adaptive,
           nb::object kept)
        : arrays_(arrays), kept_(std::move(kept)), autoreset_(static_cast<Autoreset>(autoreset)) {
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

    ~PyPool() {
        if (pool_->rows_out() != 0 && !wait_at_the_end()) leave_to_its_threads();
    }
    PyPool(const PyPool&) = delete;
    PyPool& operator=(const PyPool&) = delete;

    nb::object step(nb::handle actions, bool copy) {
        const bool may = ready && pool_->rows_out() == 0 && !pool_->lacks_plans();
        const std::byte* data = may ? plain_actions(actions, everyone()) : nullptr;
        if (data == nullptr) return nb::none();
        const bool copies_only = copy && arrays_.batch_observations.is_none();
        Fresh rewards(arrays_.rewards), terminated(arrays_.terminated),
            truncated(arrays_.truncated);
        std::optional<Fresh> only;
        std::array twins{rewards.twin, terminated.twin, truncated.twin, Twin{}};
        if (copies_only) twins.back() = only.emplace(arrays_.observations.front()).twin;
        run([&] { pool_->step(data, std::span(twins).first(copies_only ? 4 : 3)); });
        if (fails(pool_->failure())) return nb::bool_(false);
        return nb::make_tuple(only ? only->column.object() : observations(copy),
                              rewards.column.object(), terminated.column.object(),
                              truncated.column.object(), infos_among(everyone()));
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

    // -- some rows at a time -------------------------------------------------------------------

    // Sends rows whose actions are just what is asked for; False, and nothing happens, if the call
    // needs a closer look.
    bool send(nb::handle actions, nb::handle env_ids) {
        if (!ready || pool_->lacks_plans()) return false;
        const auto rows = plain_rows(env_ids);
        if (!rows || rows->empty()) return false;
        const std::byte* data = plain_actions(actions, Selection::of(*rows));
        if (data == nullptr || !mark_out(*rows)) return false;
        const size_t bytes = arrays_.actions.row_bytes();
        std::byte* stored = arrays_.actions.data();
        for (const int64_t row : *rows) {
            // They may be part of the very array that is written to.
            std::memmove(stored + row * bytes, data, bytes);
            data += bytes;
        }
        pool_->send(*rows, stored);
        return true;
    }

    // What VectorEnv.step returns, of the first that are done; None if the call needs a closer
    // look, False if an environment failed.
    nb::object recv(size_t most) {
        const size_t count = std::min(most, pool_->rows_out());
        if (!ready || count == 0 || !arrays_.batch_observations.is_none()) return nb::none();
        const nb::object received = receive(count, {});
        const std::span<const int64_t> rows = *plain_rows(received);
        for (const int64_t row : rows) arrays_.out.data()[row] = std::byte{0};
        if (fails(pool_->failure_among(rows))) return nb::bool_(false);
        const Selection some = Selection::of(rows);
        nb::dict infos = infos_among(some);
        infos["env_id"] = received;
        return nb::make_tuple(arrays_.observations.front().copy(some), arrays_.rewards.copy(some),
                              arrays_.terminated.copy(some), arrays_.truncated.copy(some), infos);
    }

    void send_stored(nb::handle env_ids) {
        pool_->send(checked_rows(env_ids), arrays_.actions.data());
    }

    void send_resets(const nb::list& options) {
        if (pool_->rows_out() != 0) throw nb::value_error("some environments are at work");
        pool_->send_resets(parsed(options));
    }

    // The first that are done, int64 (count,); None if that takes longer than so many seconds.
    nb::object receive(size_t count, std::optional<double> timeout) {
        if (count > pool_->rows_out()) throw nb::value_error("fewer are at work");
        npy_intp size = static_cast<npy_intp>(count);
        nb::object array = Column::checked(PyArray_SimpleNew(1, &size, NPY_INT64));
        const std::span rows(reinterpret_cast<int64_t*>(Column(array).data()), count);
        const Nanoseconds deadline = deadline_in(timeout);
        bool done = false;
        while (!done) {
            const auto work = [&] { done = pool_->receive(rows, deadline); };
            pool_->may_wait_for(count) ? let_others_run(work) : run(work);
            if (done) break;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            if (now() >= deadline) return nb::none();
        }
        return array;
    }

    // Waits for those at work and forgets all that was sent; returns those that take longer than so
    // many seconds and go on.
    std::vector<int64_t> recall(std::optional<double> timeout) {
        const Nanoseconds deadline = deadline_in(timeout);
        gave_up_ = true;  // unless they come back
        for (;;) {
            bool done = false;
            let_others_run([&] { done = pool_->recall(deadline); });
            if (done) break;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            if (now() < deadline) continue;
            if (auto rows = pool_->rows_under_way(); !rows.empty()) return rows;
        }
        gave_up_ = false;
        return {};
    }

    nb::dict infos_of(nb::handle env_ids) const {
        return infos_among(Selection::of(checked_rows(env_ids)));
    }

    // (env, message) of the first of these that failed, or None.
    nb::object failure_among(nb::handle env_ids) const {
        return told(pool_->failure_among(checked_rows(env_ids)));
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

    nb::dict infos() const { return infos_among(everyone()); }

    nb::object failure() const { return told(pool_->failure()); }
    nb::object quick_failure() const { return told(quick_failure_); }

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
            : column(like.unwritten(like.rows())),
              twin{like.data(), column.data(), like.row_bytes()} {}

        Column column;
        Twin twin;
    };

    // Seconds that a pool which nobody has closed waits for rows that are out.
    static constexpr double patience_at_the_end = 5;

    // False if some rows do not come back.
    bool wait_at_the_end() {
        const Nanoseconds deadline = deadline_in(gave_up_ ? 0 : patience_at_the_end);
        bool done = false;
        let_others_run([&] {
            do {
                done = pool_->recall(deadline);
            } while (!done && now() < deadline);  // a signal must not end it: its handler cannot
        });
        return done;
    }

    // No thread can be ended: all that it may use is kept until the process ends.
    void leave_to_its_threads() {
        struct Kept {
            AnyPool* pool;
            PoolArrays arrays;
            nb::object objects;
        };
        [[maybe_unused]] const auto* for_ever = new Kept{pool_.release(), arrays_, kept_};
        if (gave_up_) return;  // and has told so
        const nb::error_scope others;
        const char* text =
            "A native fleet was dropped while an environment did not return from its step. Its "
            "thread and its memory are kept until the program ends.";
        if (PyErr_WarnEx(PyExc_ResourceWarning, text, 1) != 0) PyErr_WriteUnraisable(nullptr);
    }

    // Remembers what made a quick call fail: only a closer look may go on from there.
    bool fails(const std::optional<Failure>& failure) {
        if (!failure) return false;
        quick_failure_ = failure;
        ready = false;
        return true;
    }

    static nb::object told(const std::optional<Failure>& failure) {
        if (!failure) return nb::none();
        return nb::make_tuple(failure->env, failure->message);
    }

    nb::dict infos_among(const Selection& rows) const {
        nb::dict infos;
        const auto* turns = reinterpret_cast<const Turn*>(arrays_.turns.data());
        if (autoreset_ == Autoreset::same_step) add_final(infos, turns, rows);
        if (!infos_->empty()) infos_->add_current(infos, turns, rows);
        return infos;
    }

    Selection everyone() const { return Selection::all(num_envs()); }

    // Numbers of rows where they lie, if they are an array of just that.
    std::optional<std::span<const int64_t>> plain_rows(nb::handle env_ids) const {
        if (!PyArray_Check(env_ids.ptr())) return {};
        auto* array = reinterpret_cast<PyArrayObject*>(env_ids.ptr());
        if (PyArray_TYPE(array) != NPY_INT64 || !PyArray_ISCARRAY_RO(array) ||
            PyArray_NDIM(array) != 1) {
            return {};
        }
        const std::span rows(static_cast<const int64_t*>(PyArray_DATA(array)),
                             static_cast<size_t>(PyArray_DIM(array, 0)));
        const auto exists = [this](int64_t row) { return static_cast<uint64_t>(row) < num_envs(); };
        if (!std::all_of(rows.begin(), rows.end(), exists)) return {};
        return rows;
    }
    std::span<const int64_t> checked_rows(nb::handle env_ids) const {
        const auto rows = plain_rows(env_ids);
        if (!rows) throw nb::value_error("expected an int64 array of environments");
        return *rows;
    }

    // From now on they are at work; False, and nothing happens, if one of them was or comes twice.
    bool mark_out(std::span<const int64_t> rows) const {
        std::byte* out = arrays_.out.data();
        for (size_t i = 0; i < rows.size(); ++i) {
            if (out[rows[i]] != std::byte{0}) {
                for (size_t marked = 0; marked < i; ++marked) out[rows[marked]] = std::byte{0};
                return false;
            }
            out[rows[i]] = std::byte{1};
        }
        return true;
    }

    static Nanoseconds deadline_in(std::optional<double> seconds) {
        constexpr Nanoseconds forever = std::numeric_limits<Nanoseconds>::max();
        constexpr double many = 1e9;  // whoever waits for thirty years waits for ever
        if (!seconds || !(*seconds < many)) return forever;
        return now() + static_cast<Nanoseconds>(std::max(*seconds, 0.0) * 1e9);
    }

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
        is_long_ ? let_others_run(work) : work();
        if (timed) is_long_ = now() - start > brief;
    }

    // Other Python threads run meanwhile.
    template <class Work>
    static void let_others_run(const Work& work) {
        nb::gil_scoped_release no_gil;
        work();
    }

    // The actions of these rows where they lie, if they are exactly what the environments take.
    const std::byte* plain_actions(nb::handle actions, const Selection& rows) const {
        if (!PyArray_Check(actions.ptr())) return nullptr;
        auto* array = reinterpret_cast<PyArrayObject*>(actions.ptr());
        PyArrayObject* wanted = arrays_.actions.numpy();
        const int dims = PyArray_NDIM(wanted);
        if (PyArray_TYPE(array) != PyArray_TYPE(wanted) || !PyArray_ISCARRAY_RO(array) ||
            PyArray_NDIM(array) != dims ||
            static_cast<size_t>(PyArray_DIM(array, 0)) != rows.size() ||
            !PyArray_CompareLists(PyArray_DIMS(array) + 1, PyArray_DIMS(wanted) + 1, dims - 1)) {
            return nullptr;
        }
        const auto* data = static_cast<const std::byte*>(PyArray_DATA(array));
        if (autoreset_ == Autoreset::disabled && any_finished(rows)) return nullptr;
        return all_allowed(data, rows.size()) ? data : nullptr;
    }

    bool any_finished(const Selection& rows) const {
        bool any = false;
        for (size_t place = 0; place < rows.size(); ++place) {
            any |= arrays_.finished.data()[rows[place]] != std::byte{0};
        }
        return any;
    }

    bool all_allowed(const std::byte* actions, size_t rows) const {
        const std::vector<int64_t>& limits = pool_->action_limits();
        const auto* numbers = reinterpret_cast<const int64_t*>(actions);
        // A stride known to be one lets the compiler look at many numbers at once.
        constexpr std::integral_constant<size_t, 1> one;
        if (limits.size() == 1) return all_below(limits.front(), numbers, rows, one);
        for (size_t place = 0; place < limits.size(); ++place) {
            if (!all_below(limits[place], numbers + place, rows, limits.size())) return false;
        }
        return true;
    }

    template <class Stride>
    static bool all_below(int64_t limit, const int64_t* numbers, size_t rows, Stride stride) {
        bool below = true;
        for (size_t i = 0; i < rows; ++i) {
            below &= static_cast<uint64_t>(numbers[i * stride]) < static_cast<uint64_t>(limit);
        }
        return below;
    }

    nb::object observations(bool copy) const {
        if (!arrays_.batch_observations.is_none()) return arrays_.batch_observations(copy);
        const Column& only = arrays_.observations.front();
        return copy ? only.copy() : only.object();
    }

    void add_final(nb::dict& infos, const Turn* turns, const Selection& rows) const {
        std::vector<uint8_t> ended(rows.size());
        for (size_t i = 0; i < ended.size(); ++i) {
            ended[i] = turns[rows[i]] == Turn::ended_and_reset;
        }
        if (std::find(ended.begin(), ended.end(), 1) == ended.end()) return;
        InfoColumns::add(infos, "final_obs", final_observations(rows, ended), ended);
        InfoColumns::add(infos, "final_info", infos_->final_infos(rows, ended), ended);
    }

    nb::object final_observations(const Selection& rows, const std::vector<uint8_t>& ended) const {
        npy_intp size = static_cast<npy_intp>(ended.size());
        nb::object array = Column::checked(PyArray_SimpleNew(1, &size, NPY_OBJECT));
        auto** slots =
            static_cast<PyObject**>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
        for (size_t i = 0; i < ended.size(); ++i) {
            nb::object value = ended[i] ? final_observation(rows[i]) : nb::none();
            Py_XDECREF(slots[i]);
            slots[i] = value.release().ptr();
        }
        return array;
    }

    nb::object final_observation(size_t env) const {
        if (!arrays_.final_observation.is_none()) return arrays_.final_observation(env);
        return arrays_.final_observations.front().row(env);
    }

    // Before the pool: its threads end before what they work on.
    PoolArrays arrays_;
    nb::object kept_;
    Autoreset autoreset_;
    std::unique_ptr<InfoColumns> infos_;
    std::unique_ptr<AnyPool> pool_;
    std::optional<Failure> quick_failure_;
    bool gave_up_ = false;  // on rows that were recalled and did not come
    uint64_t turns_ = 0;
    bool is_long_ = false;
};

}  // namespace envfleet
