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
#include <utility>
#include <vector>

#include "bindings/catalogue.h"
#include "bindings/exclusive.h"
#include "bindings/gil.h"
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

    // Refuses arrays that a pool of so many rows with these infos would write beyond.
    void check(size_t rows, const std::vector<InfoColumn>& kinds) const {
        if (rows == 0) throw nb::value_error("expected at least one environment");
        if (!rewards.is_scalar() || PyArray_TYPE(rewards.numpy()) != NPY_DOUBLE) {
            throw nb::value_error("rewards: expected a float64 an environment");
        }
        for (const Column* flags : {&terminated, &truncated, &finished, &turns, &out}) {
            if (!flags->is_scalar() || flags->row_bytes() != 1 || flags->rows() != rows) {
                throw nb::value_error("flags: expected a byte an environment");
            }
        }
        check_rows({actions}, rows);
        for (const auto* columns : {&observations, &final_observations, &infos, &final_infos}) {
            check_rows(*columns, rows);
        }
        for (const auto* columns : {&infos, &final_infos}) check_infos(*columns, kinds);
        const bool whole = batch_observations.is_none() || final_observation.is_none();
        if (whole && (observations.size() != 1 || final_observations.size() != 1)) {
            throw nb::value_error("observations: expected one array, or what puts them together");
        }
    }

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

    static void check_rows(const std::vector<Column>& columns, size_t rows) {
        for (const Column& column : columns) {
            if (column.rows() != rows) throw nb::value_error("expected one row an environment");
        }
    }
    static void check_infos(const std::vector<Column>& columns,
                            const std::vector<InfoColumn>& kinds) {
        bool fit = columns.size() == kinds.size();
        for (size_t i = 0; fit && i < kinds.size(); ++i) {
            fit = columns[i].row_bytes() == bytes_of(kinds[i]);
        }
        if (!fit) throw nb::value_error("the info arrays do not fit this environment");
    }
    static size_t bytes_of(const InfoColumn& kind) {
        nb::object dtype = nb::module_::import_("numpy").attr("dtype")(kind.dtype.c_str());
        size_t bytes = nb::cast<size_t>(dtype.attr("itemsize"));
        for (const size_t length : kind.shape) bytes *= length;
        return bytes;
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
        if (autoreset > static_cast<uint8_t>(Autoreset::disabled)) {
            throw nb::value_error("no such autoreset mode");
        }
        std::vector<InfoColumn> kinds = kind.infos(values.front());
        arrays.check(rows, kinds);
        infos_ = std::make_unique<InfoColumns>(std::move(kinds), arrays.infos, arrays.final_infos);
        pool_ = kind.make({rows, autoreset_, std::move(time_limits), threads, adaptive,
                           arrays.buffers(), [this] { give_gil_away(); }},
                          values);
        check_sizes();
        copies_actions_ = pool_->reads_limited_actions();
        at_work_.resize(rows);
    }

    ~PyPool() {
        if (pool_->rows_out() != 0 && !wait_at_the_end()) leave_to_its_threads();
    }
    PyPool(const PyPool&) = delete;
    PyPool& operator=(const PyPool&) = delete;

    // Whoever asks for a quick step, send or recv enters here; others hold it while they call.
    void share(nb::object exclusive) {
        exclusive_ = nb::cast<Exclusive*>(exclusive);
        shared_ = std::move(exclusive);
    }

    nb::object step(nb::handle actions, bool copy) {
        const Visit visit(*exclusive_);
        if (!visit) return nb::none();
        const Use use(*this);
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
        if (exclusive_->is_told_to_leave()) return nb::none();
        if (fails(pool_->failure())) return nb::bool_(false);
        return nb::make_tuple(only ? only->column.object() : observations(copy),
                              rewards.column.object(), terminated.column.object(),
                              truncated.column.object(), infos_among(everyone()));
    }

    void step_stored() {
        const Use use(*this);
        check_nobody_at_work();
        run([&] { pool_->step(arrays_.actions.data(), {}); });
    }

    void reset(const nb::object& mask, const nb::list& options) {
        const Column rows(mask);
        if (rows.rows() != num_envs() || rows.row_bytes() != 1) {
            throw nb::value_error("mask: expected one bool an environment");
        }
        const std::vector<NamedValues> values = parsed(options);
        const Use use(*this);
        check_nobody_at_work();
        const auto* bytes = reinterpret_cast<const uint8_t*>(rows.data());
        run([&] { pool_->reset({bytes, num_envs()}, values); });
    }

    // -- some rows at a time -------------------------------------------------------------------

    // Sends rows whose actions are just what is asked for; False, and nothing happens, if the call
    // needs a closer look.
    bool send(nb::handle actions, nb::handle env_ids) {
        const Visit visit(*exclusive_);
        if (!visit) return false;
        const Use use(*this);
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
        set_to_work(*rows);
        return true;
    }

    // What VectorEnv.step returns, of the first that are done; None if the call needs a closer
    // look, False if an environment failed.
    nb::object recv(size_t most) {
        const Visit visit(*exclusive_);
        if (!visit) return nb::none();
        const Use use(*this);
        const size_t count = std::min(most, pool_->rows_out());
        if (!ready || count == 0 || !arrays_.batch_observations.is_none()) return nb::none();
        const nb::object ids = received(count, {});
        if (exclusive_->is_told_to_leave()) return nb::none();
        const std::span<const int64_t> rows = *plain_rows(ids);
        for (const int64_t row : rows) arrays_.out.data()[row] = std::byte{0};
        if (fails(pool_->failure_among(rows))) return nb::bool_(false);
        const Selection some = Selection::of(rows);
        nb::dict infos = infos_among(some);
        infos["env_id"] = ids;
        return nb::make_tuple(arrays_.observations.front().copy(some), arrays_.rewards.copy(some),
                              arrays_.terminated.copy(some), arrays_.truncated.copy(some), infos);
    }

    void send_stored(nb::handle env_ids) {
        const Use use(*this);
        set_to_work(checked_rows(env_ids));
    }

    void send_resets(const nb::list& options) {
        const Use use(*this);
        check_nobody_at_work();
        pool_->send_resets(parsed(options));
        std::fill(at_work_.begin(), at_work_.end(), uint8_t{1});
    }

    // The first that are done, int64 (count,); None if that takes longer than so many seconds.
    nb::object receive(size_t count, std::optional<double> timeout) {
        const Use use(*this);
        if (count > pool_->rows_out()) throw nb::value_error("fewer are at work");
        const nb::object ids = received(count, timeout);
        return ids.is_valid() ? ids : nb::none();
    }

    // Waits for those at work and forgets all that was sent; returns those that take longer than so
    // many seconds and go on.
    std::vector<int64_t> recall(std::optional<double> timeout) {
        Nanoseconds deadline = deadline_in(timeout);
        const Use use(*this);
        gave_up_ = true;  // unless they come back
        for (;;) {
            bool done = false;
            const Nanoseconds start = now();
            let_others_run([&] { done = pool_->recall(next_look(deadline)); });
            if (done) break;
            look_around();
            if (timeout) deadline += lost_since(start);
            if (now() < deadline) continue;
            if (auto rows = pool_->rows_under_way(); !rows.empty()) return rows;
        }
        std::fill(at_work_.begin(), at_work_.end(), uint8_t{0});
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
        pool_->rng(idle(env)).seed(entropy);
    }

    void plan_episode(size_t env, nb::handle parameters, int64_t time_limit,
                      std::optional<uint32_t> seed) {
        const NamedValues values = named_values_from(parameters);
        check_unused();
        if (!has_plans_) check_nobody_at_work();  // the first one makes room for all
        pool_->plan_episode(checked(env), {values, time_limit, seed});
        has_plans_ = true;
    }
    void forget_plans(size_t env) { pool_->forget_plans(checked(env)); }
    size_t plans(size_t env) const { return pool_->plans(checked(env)); }
    bool lacks_plans() const { return pool_->lacks_plans(); }
    void adopt_plan(size_t env) {
        if (pool_->plans(idle(env)) == 0) throw nb::value_error("no episode was planned");
        pool_->adopt_plan(env);
    }

    nb::dict infos() const { return infos_among(everyone()); }

    nb::object failure() const { return told(pool_->failure()); }
    // What made the last quick call fail, if anything did; told once.
    nb::object take_quick_failure() { return told(std::exchange(quick_failure_, std::nullopt)); }

    nb::object rng_state(size_t env) {
        const Rng& rng = pool_->rng(idle(env));
        auto halves = [](Rng::Wide wide) {
            return nb::make_tuple(static_cast<uint64_t>(wide >> 64), static_cast<uint64_t>(wide));
        };
        return nb::make_tuple(halves(rng.state()), halves(rng.increment()),
                              static_cast<int>(rng.has_half()), rng.half());
    }

    std::vector<std::string> parameter_names() const { return pool_->parameter_names(); }
    std::vector<std::string> variable_names() const { return pool_->variable_names(); }

    nb::object get(size_t env, const std::string& name) const {
        const auto value = pool_->get(idle(env), name);
        if (!value) throw nb::attribute_error(name.c_str());
        return object_from(*value);
    }
    void set(size_t env, const std::string& name, nb::handle value) {
        const Value converted = value_from(value);
        if (!pool_->set(idle(env), name, converted)) {
            throw nb::attribute_error(name.c_str());
        }
    }
    void set_everywhere(const std::string& name, nb::handle value) {
        const Value converted = value_from(value);
        check_unused();
        check_nobody_at_work();
        if (!pool_->set_everywhere(name, converted)) {
            throw nb::attribute_error(name.c_str());
        }
    }

    int64_t elapsed(size_t env) { return pool_->elapsed(idle(env)); }
    int64_t time_limit(size_t env) { return pool_->time_limit(idle(env)); }
    void set_time_limit(size_t env, int64_t steps) { pool_->time_limit(idle(env)) = steps; }

    nb::bytes snapshot(size_t env) const {
        const auto bytes = pool_->snapshot(idle(env));
        return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    void restore(size_t env, const nb::bytes& snapshot) {
        const std::span bytes(snapshot.c_str(), snapshot.size());
        pool_->restore(idle(env), std::as_bytes(bytes));
    }

    bool ready = false;

  private:
    // A call that works on rows or waits for them. There is one at a time, whoever makes it past
    // the fleet, which lets nobody else in: two threads in one environment would break it.
    class Use {
      public:
        explicit Use(PyPool& pool) : pool_(pool) {
            pool_.check_unused();
            pool_.is_used_ = true;
        }
        ~Use() { pool_.is_used_ = false; }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

      private:
        PyPool& pool_;
    };

    // An array to be handed out, which the threads fill while they step.
    struct Fresh {
        explicit Fresh(const Column& like)
            : column(like.unwritten(like.rows())),
              twin{like.data(), column.data(), like.row_bytes()} {}

        Column column;
        Twin twin;
    };

    [[noreturn]] static void raise_in_use() {
        const nb::object type = nb::module_::import_("envfleet.errors").attr("FleetInUseError");
        const nb::object error = type(
            "This fleet is in use by another thread, which has not come back from it yet. Nothing "
            "was done: give each thread a fleet of its own, or a lock to take turns.",
            "step");
        PyErr_SetObject(type.ptr(), error.ptr());
        throw nb::python_error();
    }
    void check_unused() const {
        if (is_used_) raise_in_use();
    }

    // Sends rows with the actions that are stored, all or none.
    void set_to_work(std::span<const int64_t> rows) {
        for (size_t i = 0; i < rows.size(); ++i) {
            if (std::exchange(at_work_[rows[i]], uint8_t{1}) == 0) continue;
            for (size_t marked = 0; marked < i; ++marked) at_work_[rows[marked]] = 0;
            throw nb::value_error("an environment was sent that is at work, or twice");
        }
        pool_->send(rows, arrays_.actions.data());
    }

    void check_nobody_at_work() const {
        if (pool_->rows_out() != 0) throw nb::value_error("some environments are at work");
    }

    // The first that are done, in a new array; no object if that takes longer than so many seconds.
    nb::object received(size_t count, std::optional<double> timeout) {
        npy_intp size = static_cast<npy_intp>(count);
        nb::object array = Column::checked(PyArray_SimpleNew(1, &size, NPY_INT64));
        const std::span rows(reinterpret_cast<int64_t*>(Column(array).data()), count);
        const Nanoseconds deadline = deadline_in(timeout);
        for (;;) {
            bool done = false;
            const auto work = [&] { done = pool_->receive(rows, next_look(deadline)); };
            pool_->may_wait_for(count) ? let_others_run(work) : run(work);
            if (done) break;
            look_around();
            if (now() >= deadline) return {};
        }
        for (const int64_t row : rows) at_work_[row] = 0;
        return array;
    }

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

    // Whoever waits looks around so often: another thread may want to close the fleet.
    static constexpr Nanoseconds look_interval = 50'000'000;

    static Nanoseconds next_look(Nanoseconds deadline) {
        return std::min(deadline, now() + look_interval);
    }
    // How long the program was stopped since it looked around last: a far longer gap tells. That is
    // not the environments' time.
    static Nanoseconds lost_since(Nanoseconds last_look) {
        const Nanoseconds gap = now() - last_look;
        return gap < 4 * look_interval ? 0 : gap - look_interval;
    }
    void look_around() const {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        exclusive_->check();
    }

    size_t num_envs() const { return arrays_.rewards.rows(); }
    size_t checked(size_t env) const {
        if (env >= num_envs()) throw nb::index_error("no such environment");
        return env;
    }

    // An environment that nobody works on.
    size_t idle(size_t env) const {
        check_unused();
        if (at_work_[checked(env)]) throw nb::value_error("this environment is at work");
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
    // microseconds does not give it away, unless it has to wait.
    template <class Work>
    void run(const Work& work) {
        constexpr Nanoseconds brief = 10'000;
        const bool timed = turns_++ % 16 == 0;
        const Nanoseconds start = timed ? now() : 0;
        is_long_ ? let_others_run(work) : keep_gil(work);
        if (timed) is_long_ = now() - start > brief;
    }

    template <class Work>
    void keep_gil(const Work& work) {
        struct Back {
            PyPool& pool;
            ~Back() {
                pool.may_give_away_ = false;
                if (pool.others_run_) pool.others_run_.reset();
            }
        } back{*this};
        may_give_away_ = true;
        work();
    }

    // Helpers keep the caller waiting, perhaps because an environment needs the GIL.
    void give_gil_away() {
        if (may_give_away_) others_run_.emplace();
    }

    // Other Python threads run meanwhile.
    template <class Work>
    static void let_others_run(const Work& work) {
        const WithoutGil others_run;
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
        if (!all_allowed(data, rows.size())) return nullptr;
        return copies_actions_ && rows.is_all() ? stored(data) : data;
    }

    // The actions of all rows where nobody else can change them; none if somebody just did.
    const std::byte* stored(const std::byte* actions) const {
        std::byte* own = arrays_.actions.data();
        std::memmove(own, actions, num_envs() * arrays_.actions.row_bytes());
        return all_allowed(own, num_envs()) ? own : nullptr;
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
    Exclusive alone_{nb::none()};  // until it is shared
    Exclusive* exclusive_ = &alone_;
    nb::object shared_;
    bool gave_up_ = false;          // on rows that were recalled and did not come
    std::vector<uint8_t> at_work_;  // which rows were sent and not received
    bool is_used_ = false;          // by a call
    bool has_plans_ = false;
    bool copies_actions_ = false;
    uint64_t turns_ = 0;
    bool is_long_ = false;
    bool may_give_away_ = false;  // the GIL, which is held meanwhile
    std::optional<WithoutGil> others_run_;
};

}  // namespace envfleet
