// A pool behind checks: nothing Python passes in can crash it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/catalogue.h"
#include "bindings/deadlines.h"
#include "bindings/exclusive.h"
#include "bindings/gil_turns.h"
#include "bindings/infos.h"
#include "bindings/plain_arguments.h"
#include "bindings/pool_arrays.h"
#include "bindings/results.h"
#include "bindings/rollout.h"
#include "bindings/values.h"

namespace envfleet {

namespace nb = nanobind;

class PyPool {
  public:
    // `kept`: what the environments use by address. The garbage collector is not told that it is
    // held: it would empty such objects in any order, also before the threads have ended. So
    // neither it nor the functions in `arrays` may refer back to the pool.
    PyPool(const Kind& kind, const nb::list& parameters, const PoolArrays& arrays,
           uint8_t autoreset, std::vector<int64_t> time_limits, unsigned threads, bool adaptive,
           nb::object kept)
        : arrays_(arrays), autoreset_(Autoreset{autoreset}), kept_(std::move(kept)) {
        const std::vector<NamedValues> values = all_named_values_from(parameters);
        const size_t rows = arrays.rewards.rows();
        if (values.empty() || (values.size() != 1 && values.size() != rows)) {
            throw nb::value_error("parameters: expected one dict, or one per environment");
        }
        if (time_limits.size() != rows) throw nb::value_error("expected a time limit each");
        if (autoreset > static_cast<uint8_t>(Autoreset::disabled)) {
            throw nb::value_error("no such autoreset mode");
        }
        std::vector<InfoColumn> kinds = kind.infos(values.front());
        arrays.check(rows, kinds);
        pool_ = kind.make({rows, autoreset_, std::move(time_limits), threads, adaptive,
                           arrays.buffers(), [this] { gil_.give_away(); }},
                          values);
        arrays.check_sizes(pool_->action_bytes(), pool_->observation_bytes());
        kinds_ = kinds;
        results_.emplace(arrays_, std::move(kinds), autoreset_);
        plain_.emplace(arrays_, *pool_, autoreset_);
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
        const InUse::Scope use(in_use_);
        const bool may = ready && pool_->rows_out() == 0 && !pool_->lacks_plans();
        const std::byte* data = may ? plain_->actions(actions, everyone()) : nullptr;
        if (data == nullptr) return nb::none();
        const bool copies_only = copy && arrays_.batch_observations.is_none();
        FreshArray rewards(arrays_.rewards), terminated(arrays_.terminated),
            truncated(arrays_.truncated);
        std::optional<FreshArray> only;
        std::array twins{rewards.twin, terminated.twin, truncated.twin, Twin{}};
        if (copies_only) twins.back() = only.emplace(arrays_.observations.front()).twin;
        gil_.run([&] { pool_->step(data, std::span(twins).first(copies_only ? 4 : 3)); });
        if (exclusive_->is_told_to_leave()) return nb::none();
        if (fails(pool_->failure())) return nb::bool_(false);
        return nb::make_tuple(only ? only->column.object() : results_->observations(copy),
                              rewards.column.object(), terminated.column.object(),
                              truncated.column.object(), results_->infos(everyone()));
    }

    // A rollout that roll_out() takes further. It must not outlive the pool.
    PyRollout* begin_rollout(nb::object policy, const PyRolloutArrays& arrays,
                             const std::vector<std::string>& info_names) const {
        return new PyRollout(std::move(policy), arrays, arrays_, kinds_, info_names);
    }

    // True once it is over; False if planned episodes have run out, which then have to be supplied.
    // Whoever calls has the fleet to itself. If an environment failed, a quick call did.
    bool roll_out(PyRollout& rollout) {
        const InUse::Scope use(in_use_);
        check_nobody_at_work();
        while (!rollout.rollout().is_over()) {
            if (pool_->lacks_plans()) return false;
            GilTurns::let_others_run(
                [&] { pool_->roll_out(rollout.rollout(), now() + between_looks); });
            look_around();
        }
        fails(pool_->failure_among(rollout.rollout().last_rows()));
        return true;
    }

    void step_stored() {
        const InUse::Scope use(in_use_);
        check_nobody_at_work();
        gil_.run([&] { pool_->step(arrays_.actions.data(), {}); });
    }

    void reset(const nb::object& mask, const nb::list& options) {
        const Column rows(mask);
        if (rows.rows() != num_envs() || rows.row_bytes() != 1) {
            throw nb::value_error("mask: expected one bool an environment");
        }
        const std::vector<NamedValues> values = parsed(options);
        const InUse::Scope use(in_use_);
        check_nobody_at_work();
        const auto* bytes = reinterpret_cast<const uint8_t*>(rows.data());
        gil_.run([&] { pool_->reset({bytes, num_envs()}, values); });
    }

    // -- some rows at a time -------------------------------------------------------------------

    // Sends rows whose actions are just what is asked for; False, and nothing happens, if the call
    // needs a closer look.
    bool send(nb::handle actions, nb::handle env_ids) {
        const Visit visit(*exclusive_);
        if (!visit) return false;
        const InUse::Scope use(in_use_);
        if (!ready || pool_->lacks_plans()) return false;
        const auto rows = plain_->rows(env_ids);
        if (!rows || rows->empty()) return false;
        const std::byte* data = plain_->actions(actions, Selection::of(*rows));
        if (data == nullptr || !set_all_or_none(out(), *rows)) return false;
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
        const InUse::Scope use(in_use_);
        const size_t count = std::min(most, pool_->rows_out());
        if (!ready || count == 0 || !arrays_.batch_observations.is_none()) return nb::none();
        const nb::object ids = received(count, {});
        if (exclusive_->is_told_to_leave()) return nb::none();
        const std::span<const int64_t> rows = *plain_->rows(ids);
        for (const int64_t row : rows) out()[row] = 0;
        if (fails(pool_->failure_among(rows))) return nb::bool_(false);
        const Selection some = Selection::of(rows);
        nb::dict infos = results_->infos(some);
        infos["env_id"] = ids;
        return nb::make_tuple(arrays_.observations.front().copy(some), arrays_.rewards.copy(some),
                              arrays_.terminated.copy(some), arrays_.truncated.copy(some), infos);
    }

    void send_stored(nb::handle env_ids) {
        const InUse::Scope use(in_use_);
        set_to_work(plain_->checked_rows(env_ids));
    }

    void send_resets(nb::handle env_ids, const nb::list& options) {
        const std::vector<NamedValues> values = parsed(options);
        pool_->check_options(values);
        const InUse::Scope use(in_use_);
        const std::span<const int64_t> rows = plain_->checked_rows(env_ids);
        check_idle_and_note(rows);
        pool_->send_resets(rows, values);
    }

    // The first that are done, int64 (count,); None if that takes longer than so many seconds.
    nb::object receive(size_t count, std::optional<double> timeout) {
        const InUse::Scope use(in_use_);
        if (count > pool_->rows_out()) throw nb::value_error("fewer are at work");
        const nb::object ids = received(count, timeout);
        return ids.is_valid() ? ids : nb::none();
    }

    // Waits for those at work and forgets all that was sent; returns those that take longer than so
    // many seconds and go on.
    std::vector<int64_t> recall(std::optional<double> timeout) {
        Nanoseconds deadline = deadline_in(timeout);
        const InUse::Scope use(in_use_);
        gave_up_ = true;  // unless they come back
        for (;;) {
            bool done = false;
            const Nanoseconds start = now();
            GilTurns::let_others_run([&] { done = pool_->recall(next_look(deadline)); });
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
        return results_->infos(Selection::of(plain_->checked_rows(env_ids)));
    }

    // (env, message) of the first of these that failed, or None.
    nb::object failure_among(nb::handle env_ids) const {
        return told(pool_->failure_among(plain_->checked_rows(env_ids)));
    }

    void check_options(const nb::list& options) const { pool_->check_options(parsed(options)); }

    // Any non-negative integer, of any size.
    void seed(size_t env, const nb::int_& seed) { pool_->rng(idle(env)).seed(words_from(seed)); }

    void plan_episode(size_t env, nb::handle parameters, int64_t time_limit,
                      std::optional<uint32_t> seed) {
        const NamedValues values = named_values_from(parameters);
        in_use_.check();
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

    nb::dict infos() const { return results_->infos(everyone()); }

    nb::object failure() const { return told(pool_->failure()); }
    // What made the last quick call fail, if anything did; told once.
    nb::object take_quick_failure() {
        in_use_.check();
        return told(std::exchange(quick_failure_, std::nullopt));
    }

    nb::object rng_state(size_t env) { return object_from(pool_->rng(idle(env))); }

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
        in_use_.check();
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

    // -- callers without the GIL ---------------------------------------------------------------

    // Has work(pool, plain) done, which says what is wrong, if that is possible. Returns what is
    // wrong, in words, or nothing.
    template <class Work>
    std::string without_python(const Work& work) {
        if (!in_use_.try_enter()) return "another thread is using this fleet";
        struct Leave {
            InUse& place;
            ~Leave() { place.leave(); }
        } const leave{in_use_};
        if (!ready) return "it was closed, or its environments have to be reset: envs.reset()";
        if (pool_->rows_out() != 0) return "some environments are at work: envs.recv() them";
        if (pool_->lacks_plans()) return "its episodes draw their parameters";
        std::string problem = work(*pool_, *plain_);
        if (!problem.empty()) return problem;
        if (!fails(pool_->failure())) return {};
        return "environment " + std::to_string(quick_failure_->env) +
               " failed: " + quick_failure_->message;
    }

    const PoolArrays& arrays() const { return arrays_; }
    bool resets_in_same_step() const { return autoreset_ == Autoreset::same_step; }

    std::atomic<bool> ready{false};

  private:
    // Sends rows with the actions that are stored, all or none.
    void set_to_work(std::span<const int64_t> rows) {
        check_idle_and_note(rows);
        pool_->send(rows, arrays_.actions.data());
    }

    void check_idle_and_note(std::span<const int64_t> rows) {
        if (!set_all_or_none(at_work_.data(), rows)) {
            throw nb::value_error("an environment was sent that is at work, or twice");
        }
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
            pool_->may_wait_for(count) ? GilTurns::let_others_run(work) : gil_.run(work);
            if (done) break;
            look_around();
            if (now() >= deadline) return {};
        }
        for (const int64_t row : rows) at_work_[row] = 0;
        return array;
    }

    // How long a rollout goes on without a look whether a signal has arrived.
    static constexpr Nanoseconds between_looks = 50'000'000;

    // Seconds that a pool which nobody has closed waits for rows that are out.
    static constexpr double patience_at_the_end = 5;

    // False if some rows do not come back.
    bool wait_at_the_end() {
        const Nanoseconds deadline = deadline_in(gave_up_ ? 0 : patience_at_the_end);
        bool done = false;
        GilTurns::let_others_run([&] {
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

    Selection everyone() const { return Selection::all(num_envs()); }

    void look_around() const {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        exclusive_->check();
    }

    size_t num_envs() const { return arrays_.rewards.rows(); }
    uint8_t* out() const { return reinterpret_cast<uint8_t*>(arrays_.out.data()); }
    size_t checked(size_t env) const {
        if (env >= num_envs()) throw nb::index_error("no such environment");
        return env;
    }

    // An environment that nobody works on.
    size_t idle(size_t env) const {
        in_use_.check();
        if (at_work_[checked(env)]) throw nb::value_error("this environment is at work");
        return env;
    }

    std::vector<NamedValues> parsed(const nb::list& options) const {
        std::vector<NamedValues> values = all_named_values_from(options);
        if (!values.empty() && values.size() != num_envs()) {
            throw nb::value_error("options: expected one dict per environment");
        }
        return values;
    }

    // Before the pool: its threads end before what they work on.
    PoolArrays arrays_;
    const Autoreset autoreset_;
    std::vector<InfoColumn> kinds_;
    nb::object kept_;
    std::unique_ptr<AnyPool> pool_;
    std::optional<Results> results_;
    std::optional<PlainArguments> plain_;
    std::optional<Failure> quick_failure_;
    Exclusive alone_{nb::none()};  // until it is shared
    Exclusive* exclusive_ = &alone_;
    nb::object shared_;
    bool gave_up_ = false;          // on rows that were recalled and did not come
    std::vector<uint8_t> at_work_;  // which rows were sent and not received
    InUse in_use_;
    bool has_plans_ = false;
    GilTurns gil_;
};

}  // namespace envfleet
