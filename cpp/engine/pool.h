// Many environments of one type: autoreset, time limits, threads.
//
// What an environment must have is written in environment.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/any_pool.h"
#include "engine/environment.h"
#include "engine/failures.h"
#include "engine/fit.h"
#include "engine/flags.h"
#include "engine/plans.h"
#include "engine/reset_options.h"
#include "engine/snapshot.h"
#include "engine/team.h"
#include "engine/tickets.h"
#include "engine/turns.h"

namespace envfleet {

template <Environment Env>
class Pool final : public AnyPool {
  public:
    using State = typename Env::State;
    using Params = typename Env::Params;
    using Action = typename Env::Action;
    using Options = OptionsOf<Env>;

    // `params`: one for all, or one per environment.
    Pool(PoolSetup setup, std::vector<Params> params)
        : num_envs_(setup.num_envs),
          autoreset_(setup.autoreset),
          limits_(std::move(setup.time_limits)),
          out_(std::move(setup.buffers)),
          params_(std::move(params)),
          plans_(num_envs_),
          rngs_(num_envs_),
          elapsed_(num_envs_),
          tickets_of_(num_envs_),
          sent_options_(num_envs_),
          room_{row_bytes(out_.observations), row_bytes(out_.infos),
                envfleet::action_size<Env>(params_.front()),
                envfleet::action_limits<Env>(params_.front())},
          action_size_(room_.action),
          team_(setup.threads, num_envs_),
          turns_(team_, num_envs_, setup.adaptive, std::move(setup.before_long_wait)),
          long_turns_(team_, num_envs_, setup.adaptive, nullptr, pieces_of_rollouts),
          tickets_(team_, num_envs_, setup.adaptive, [this](size_t env) { run_ticket(env); }) {
        check_arrays();
        states_.reserve(num_envs_);
        for (size_t env = 0; env < num_envs_; ++env) {
            if constexpr (std::is_constructible_v<State, const Params&>) {
                states_.emplace_back(params_of(env));
            } else {
                states_.emplace_back();
            }
        }
    }

    size_t action_bytes() const override {
        return action_size_ * sizeof(std::remove_pointer_t<Action>);
    }

    std::vector<size_t> observation_bytes() const override {
        return Env::observation_bytes(params_.front());
    }

    const std::vector<int64_t>& action_limits() const override { return room_.action_limits; }

    bool reads_limited_actions() const override {
        return std::is_pointer_v<Action> && !room_.action_limits.empty();
    }

    void step(const std::byte* actions, std::span<const Twin> twins,
              const Twin* elsewhere = nullptr) override {
        tickets_.check_here();
        failures_.forget();
        turns_.run([this, actions, twins, elsewhere](size_t first, size_t last) {
            if (elsewhere != nullptr) elsewhere->copy_rows(first, last);
            step_rows(first, last, actions);
            for (const Twin& twin : twins) twin.copy_rows(first, last);
        });
    }

    void roll_out(Rollout& rollout, Nanoseconds deadline) override {
        tickets_.check_here();
        if (!rollout.has_begun()) failures_.forget();
        rollout.begin();
        long_turns_.run_long([&](size_t from, size_t to) {
            rollout.run(
                from, to, deadline, out_, autoreset_,
                [this](size_t first, size_t last) { return !plans_.lack_among(first, last); },
                [&](size_t first, size_t last) {
                    if (!all_allowed(first, last, rollout.taken())) return false;
                    step_rows(first, last, rollout.taken());
                    return !failures_.first([&](size_t env) { return env >= first && env < last; });
                });
        });
    }

    void check_options(const std::vector<NamedValues>& options) const override {
        parsed_options<Env>(options);
    }

    void reset(std::span<const uint8_t> mask, const std::vector<NamedValues>& options) override {
        tickets_.check_here();
        const auto parsed = parsed_options<Env>(options);
        failures_.forget();
        turns_.run([&](size_t first, size_t last) {
            for (size_t env = first; env < last; ++env) {
                out_.turns[env] = Turn::none;
                if (mask[env]) reset_as_asked(env, parsed);
            }
        });
    }

    void send(std::span<const int64_t> rows, const std::byte* actions) override {
        for (const int64_t env : rows) tickets_of_[env] = {false, actions};
        tickets_.send(rows);
    }

    void send_resets(std::span<const int64_t> rows,
                     const std::vector<NamedValues>& options) override {
        tickets_.check_here();
        const auto parsed = parsed_options<Env>(options);
        if (tickets_.out() == 0) failures_.forget();  // else some may be yet to be told
        for (const int64_t env : rows) {
            sent_options_[env] = parsed.empty() ? Options{} : parsed[env];
            tickets_of_[env] = {true, nullptr};
        }
        tickets_.send(rows);
    }

    bool receive(std::span<int64_t> rows, Nanoseconds deadline) override {
        return tickets_.receive(rows, deadline);
    }
    bool may_wait_for(size_t count) const override { return tickets_.may_wait_for(count); }
    bool recall(Nanoseconds deadline) override { return tickets_.recall(deadline); }
    size_t rows_out() const override { return tickets_.out(); }
    std::vector<int64_t> rows_under_way() override { return tickets_.under_way(); }

    std::optional<Failure> failure() const override {
        return failures_.first([](size_t) { return true; });
    }
    std::optional<Failure> failure_among(std::span<const int64_t> rows) const override {
        return failures_.first([rows](size_t env) {
            return std::find(rows.begin(), rows.end(), static_cast<int64_t>(env)) != rows.end();
        });
    }

    void plan_episode(size_t env, const EpisodePlan& plan) override {
        tickets_.check_here();
        Params params = params_from<Env>(plan.parameters);
        check_fit(row_sizes<Env>(params), room_);
        one_params_each();
        plans_.add(env, {std::move(params), plan.time_limit, plan.seed});
    }
    void forget_plans(size_t env) override {
        tickets_.check_here();
        plans_.forget(env);
    }
    size_t plans(size_t env) const override {
        tickets_.check_here();
        return plans_.count(env);
    }
    bool lacks_plans() const override { return plans_.are_lacking(); }
    void adopt_plan(size_t env) override {
        begin_planned(env);
        show(env, out_.observations, out_.infos);
    }

    Rng& rng(size_t env) override { return rngs_[env]; }
    int64_t& elapsed(size_t env) override { return elapsed_[env]; }
    int64_t& time_limit(size_t env) override { return limits_[env]; }

    std::vector<std::string> parameter_names() const override {
        return envfleet::parameter_names<Env>(params_.front());
    }
    std::vector<std::string> variable_names() const override {
        return field_names(Env::variables());
    }

    std::optional<Value> get(size_t env, std::string_view name) const override {
        auto found = get_parameter<Env>(params_of(env), name);
        if (!found) found = get_field(Env::variables(), states_[env], name);
        if constexpr (HasConstants<Env>) {
            if (!found) found = get_field(Env::constants(), params_of(env), name);
        }
        return found;
    }

    bool set(size_t env, std::string_view name, const Value& value) override {
        Params changed = params_of(env);
        if (set_parameter<Env>(changed, name, value)) {
            check_params(changed);
            one_params_each();
            params_[env] = std::move(changed);
            return true;
        }
        return set_variable(env, name, value);
    }

    bool set_everywhere(std::string_view name, const Value& value) override {
        bool found = true;
        std::vector<Params> changed = params_;
        for (Params& params : changed) {
            found = found && set_parameter<Env>(params, name, value);
            if (found) check_params(params);
        }
        if (found) params_ = std::move(changed);
        for (size_t env = 0; !found && env < num_envs_; ++env) {
            if (!set(env, name, value)) return false;
        }
        return true;
    }

    std::vector<std::byte> snapshot(size_t env) const override {
        std::vector<std::byte> bytes;
        write(bytes, rngs_[env]);
        write(bytes, elapsed_[env]);
        write(bytes, out_.finished[env] != 0);
        const auto state = save_state<Env>(states_[env]);
        bytes.insert(bytes.end(), state.begin(), state.end());
        return bytes;
    }

    void restore(size_t env, std::span<const std::byte> snapshot) override {
        SnapshotReader reader(snapshot);
        Rng rng;
        int64_t elapsed = 0;
        bool finished = false;
        reader.read(rng);
        reader.read(elapsed);
        reader.read(finished);
        if (elapsed < 0 || elapsed > most_steps) refuse_snapshot("nobody counts so many steps");
        change(env, [&](State& state) {
            load_state<Env>(state, params_of(env), reader.rest());
            return true;
        });
        rngs_[env] = rng;
        elapsed_[env] = elapsed;
        out_.finished[env] = finished;
    }

  private:
    struct Ticket {
        bool is_reset;
        const std::byte* actions;
    };
    static constexpr int64_t most_steps = int64_t{1} << 53;
    // A policy takes as long for a few rows as for one, and in a long turn a piece is soon made up.
    static constexpr size_t pieces_of_rollouts = 2;

    // A value that cannot be is refused, and the state stays as it was.
    bool set_variable(size_t env, std::string_view name, const Value& value) {
        return change(env, [&](State& state) {
            const bool found = set_field(Env::variables(), state, name, value);
            if (found) check_state<Env>(state, params_of(env));
            return found;
        });
    }

    // Changes a state and shows it, if the change returns true. If anything throws, everything is
    // as before; of states that cannot be copied the change itself sees to that.
    template <class Change>
    bool change(size_t env, const Change& apply) {
        const RowCopy observation(out_.observations, env), info(out_.infos, env);
        if constexpr (std::is_copy_assignable_v<State>) {
            const State before = states_[env];
            try {
                return applied(env, apply);
            } catch (...) {
                states_[env] = before;
                observation.put_back();
                info.put_back();
                throw;
            }
        } else {
            return applied(env, apply);
        }
    }
    template <class Change>
    bool applied(size_t env, const Change& apply) {
        const bool done = apply(states_[env]);
        if (done) show(env, out_.observations, out_.infos);
        return done;
    }

    // Rows share arrays: one that writes more than the others would write into its neighbour's.
    void check_arrays() const {
        if (row_bytes(out_.final_observations) != room_.observation ||
            row_bytes(out_.final_infos) != room_.info) {
            throw std::invalid_argument("the arrays of last observations and infos do not fit.");
        }
        check_all_fit<Env>(params_, room_);
    }

    // Of parameters that were changed.
    void check_params(const Params& params) const {
        if constexpr (requires { params.check(); }) params.check();
        check_fit(row_sizes<Env>(params), room_);
    }

    const Params& params_of(size_t env) const { return params_[params_.size() == 1 ? 0 : env]; }

    void one_params_each() {
        if (params_.size() != num_envs_) params_.assign(num_envs_, Params(params_.front()));
    }

    void begin_planned(size_t env) {
        PlannedEpisode<Params> next = plans_.take(env);
        params_[env] = std::move(next.params);
        limits_[env] = next.time_limit;
        if (next.seed) rngs_[env].seed({&*next.seed, 1});
    }

    Action action_of(size_t env, const std::byte* actions) const {
        if constexpr (std::is_pointer_v<Action>) {
            return reinterpret_cast<Action>(actions) + env * action_size_;
        } else {
            return checked_action(reinterpret_cast<const Action*>(actions)[env]);
        }
    }

    int64_t action_limit() const {
        if constexpr (requires { Env::action_limits(params_.front()); }) {
            return room_.action_limits.front();
        } else {
            return Env::num_actions;
        }
    }

    // Whoever gave the actions may change them although they were checked: other threads run.
    Action checked_action(const volatile Action& given) const {
        const Action action = given;  // read once
        if constexpr (std::is_integral_v<Action>) {
            if (static_cast<uint64_t>(action) >= static_cast<uint64_t>(action_limit())) {
                throw std::invalid_argument("its action was changed while it was being stepped");
            }
        }
        return action;
    }

    // Looks at actions that nobody has checked: those that are none are failures.
    bool all_allowed(size_t first, size_t last, const std::byte* actions) {
        bool all = true;
        const std::vector<int64_t>& limits = room_.action_limits;
        const auto* numbers = reinterpret_cast<const uint64_t*>(actions);
        for (size_t number = first * limits.size(); number < last * limits.size(); ++number) {
            if (numbers[number] < static_cast<uint64_t>(limits[number % limits.size()])) continue;
            failures_.note(number / limits.size(), "its policy chose an action that it has not");
            all = false;
        }
        return all;
    }

    void step_rows(size_t first, size_t last, const std::byte* actions) {
        if constexpr (HasBlock<Env>) {
            if (params_.size() == 1) {
                constexpr size_t most = rows_of_a_block<Env>();
                for (; first < last; first += most) {
                    step_block(first, std::min(most, last - first), actions);
                }
                return;
            }
        }
        for (size_t env = first; env < last; ++env) {
            guarded(env, [&] { step_row(env, actions); });
        }
    }

    void step_row(size_t env, const std::byte* actions) {
        if (out_.finished[env] && autoreset_ != Autoreset::same_step) return begin_episode(env);
        const Outcome outcome =
            Env::step(states_[env], rngs_[env], params_of(env), action_of(env, actions));
        const bool time_is_up = ++elapsed_[env] >= limits_[env];
        out_.rewards[env] = outcome.reward;
        out_.terminated[env] = outcome.terminated;
        out_.truncated[env] = outcome.truncated || time_is_up;
        end_turn(env);
        if (out_.turns[env] == Turn::stepped) show(env, out_.observations, out_.infos);
    }

    // As step_row for many rows: what is the same for all first, what few rows need afterwards.
    void step_block(size_t first, size_t count, const std::byte* actions)
        requires HasBlock<Env>
    {
        const bool at_once = autoreset_ == Autoreset::same_step;
        std::array<uint8_t, rows_of_a_block<Env>()>
            special{};  // rows that need a reset as well, or instead
        if (!at_once) std::copy_n(out_.finished + first, count, special.begin());
        Env::step_block(&states_[first], params_.front(),
                        reinterpret_cast<const Action*>(actions) + first, count,
                        out_.rewards + first, out_.terminated + first,
                        Row(out_.observations, first).template leaf<float>(0));
        count_block(first, count);
        if (at_once) std::copy_n(out_.finished + first, count, special.begin());
        for_each_set(special, [&](size_t i) {
            guarded(first + i, [&] { at_once ? end_turn(first + i) : begin_episode(first + i); });
        });
    }

    // Counts the step of each row. Only pointers that promise not to overlap let the compiler take
    // many rows at once.
    void count_block(size_t first, size_t count) {
        int64_t* __restrict elapsed = &elapsed_[first];
        const int64_t* __restrict limits = &limits_[first];
        const uint8_t* __restrict terminated = out_.terminated + first;
        uint8_t* __restrict truncated = out_.truncated + first;
        uint8_t* __restrict finished = out_.finished + first;
        std::fill_n(out_.turns + first, count, Turn::stepped);
        for (size_t i = 0; i < count; ++i) truncated[i] = ++elapsed[i] >= limits[i];
        for (size_t i = 0; i < count; ++i) finished[i] = terminated[i] | truncated[i];
    }

    void end_turn(size_t env) {
        out_.turns[env] = Turn::stepped;
        out_.finished[env] = out_.terminated[env] | out_.truncated[env];
        if (!out_.finished[env] || autoreset_ != Autoreset::same_step) return;
        show(env, out_.final_observations, out_.final_infos);
        restart(env, Options{});
        out_.turns[env] = Turn::ended_and_reset;
    }

    // A row that awaited its reset: this turn is nothing else.
    void begin_episode(size_t env) {
        restart(env, Options{});
        out_.rewards[env] = 0.0;
        out_.terminated[env] = out_.truncated[env] = out_.finished[env] = false;
        out_.turns[env] = Turn::reset;
    }

    template <class Opts>
    void restart(size_t env, const Opts& options) {
        elapsed_[env] = 0;
        if (plans_.are_used()) begin_planned(env);
        if constexpr (HasOptions<Env>) {
            Env::reset(states_[env], rngs_[env], params_of(env), options);
        } else {
            Env::reset(states_[env], rngs_[env], params_of(env));
        }
        show(env, out_.observations, out_.infos);
    }

    void show(size_t env, const std::vector<Leaf>& observations, const std::vector<Leaf>& infos) {
        Env::observe(states_[env], params_of(env), Row(observations, env));
        if constexpr (HasInfos<Env>) Env::inform(states_[env], params_of(env), Row(infos, env));
    }

    template <class Action_>
    void guarded(size_t env, Action_ action) {
        try {
            action();
        } catch (const std::exception& error) {
            failures_.note(env, error.what());
        } catch (...) {
            failures_.note(env, "an exception of unknown type");
        }
    }

    void run_ticket(size_t env) {
        const Ticket ticket = tickets_of_[env];
        if (ticket.is_reset) return reset_as_asked(env, sent_options_);
        guarded(env, [&] { step_row(env, ticket.actions); });
    }

    void reset_as_asked(size_t env, const std::vector<Options>& options) {
        guarded(env, [&] {
            restart(env, options.empty() ? Options{} : options[env]);
            out_.rewards[env] = 0.0;
            out_.terminated[env] = out_.truncated[env] = out_.finished[env] = false;
            out_.turns[env] = Turn::reset;
        });
    }

    const size_t num_envs_;
    const Autoreset autoreset_;
    std::vector<int64_t> limits_;
    Buffers out_;
    std::vector<Params> params_;
    Plans<Params> plans_;
    std::vector<State> states_;
    std::vector<Rng> rngs_;
    std::vector<int64_t> elapsed_;
    Failures failures_;
    std::vector<Ticket> tickets_of_;     // what each row that is out is to do
    std::vector<Options> sent_options_;  // of each row whose reset is out
    const RowSizes room_;                // what there is place for in a row
    const size_t action_size_;
    // Last: the threads end before what they work on.
    Team team_;
    Turns turns_, long_turns_;
    Tickets tickets_;
};

}  // namespace envfleet
