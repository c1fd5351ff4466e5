// A rollout as Python sees it: the arrays it is kept in, and what was noted beside them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bindings/infos.h"
#include "bindings/pool_arrays.h"
#include "engine/rollout.h"

namespace envfleet {

namespace nb = nanobind;

// The arrays a rollout is kept in, [steps, rows, ...] each; observations are of one step more.
struct PyRolloutArrays {
    Column observations, actions, rewards, terminated, truncated, valid;

    // Refuses arrays that a rollout of this pool with this policy would write beyond.
    void check(const PoolArrays& pool, const RowPolicy::Sizes& policy) const {
        const size_t steps = rewards.rows(), rows = pool.rewards.rows();
        const Column& seen = pool.observations.front();
        if (pool.observations.size() != 1) throw nb::value_error("expected one observation array");
        if (steps == 0 || policy.steps < steps || policy.rows != rows) {
            throw nb::value_error("policy: it is made for other steps or rows");
        }
        if (policy.observation != seen.row_bytes() || policy.taken != pool.actions.row_bytes()) {
            throw nb::value_error("policy: it is made for other observations or actions");
        }
        check_one(observations, steps + 1, rows * seen.row_bytes(), "observations");
        check_one(actions, steps, rows * policy.action, "actions");
        check_one(rewards, steps, rows * sizeof(double), "rewards");
        check_one(terminated, steps, rows, "terminated");
        check_one(truncated, steps, rows, "truncated");
        check_one(valid, steps, rows, "valid");
        if (PyArray_TYPE(observations.numpy()) != PyArray_TYPE(seen.numpy()) ||
            PyArray_TYPE(rewards.numpy()) != NPY_DOUBLE) {
            throw nb::value_error("observations, rewards: expected the types of the fleet's");
        }
    }

    RolloutArrays plain(const PoolArrays& pool, const RowPolicy::Sizes& policy) const {
        const auto bytes = [](const Column& column) {
            return reinterpret_cast<uint8_t*>(column.data());
        };
        return {observations.data(),
                policy.observation,
                actions.data(),
                policy.action,
                reinterpret_cast<double*>(rewards.data()),
                bytes(terminated),
                bytes(truncated),
                bytes(valid),
                pool.actions.data()};
    }

  private:
    static void check_one(const Column& column, size_t steps, size_t bytes, const char* name) {
        if (column.rows() == steps && column.row_bytes() == bytes) return;
        throw nb::value_error((std::string(name) + ": the array does not fit").c_str());
    }
};

class PyRollout {
  public:
    // `names`: numbers of an episode's last info to be kept; those that the infos do not have, or
    // that are no single numbers, are left out. The pool's arrays outlive this.
    PyRollout(nb::object policy, PyRolloutArrays arrays, const PoolArrays& pool,
              const std::vector<InfoColumn>& kinds, const std::vector<std::string>& names)
        : policy_(std::move(policy)),
          arrays_(std::move(arrays)),
          pool_(pool),
          kinds_(kept_infos(kinds, names)),
          rollout_(*chooser(), checked(), arrays_.rewards.rows(), pool.rewards.rows(),
                   numbers_of(kinds_)) {
        for (const auto& [name, number] : kinds_) infos_.push_back(pool_.infos[number]);
    }

    Rollout& rollout() { return rollout_; }
    size_t made() const { return rollout_.made(); }

    // The last observations of the episodes that ended, by step and environment.
    nb::object final_observations() const { return gathered(pool_.observations.front(), 0); }

    // What their last infos say, by name.
    nb::dict final_infos() const {
        nb::dict found;
        size_t place = pool_.observations.front().row_bytes();
        for (size_t i = 0; i < infos_.size(); ++i) {
            found[kinds_[i].first.c_str()] = gathered(infos_[i], place);
            place += infos_[i].row_bytes();
        }
        return found;
    }

  private:
    using Kept = std::vector<std::pair<std::string, size_t>>;

    static Kept kept_infos(const std::vector<InfoColumn>& kinds,
                           const std::vector<std::string>& names) {
        Kept kept;
        for (size_t i = 0; i < kinds.size(); ++i) {
            const bool is_number =
                kinds[i].at_step && !kinds[i].marks_integers && kinds[i].shape.empty();
            const bool is_asked =
                std::find(names.begin(), names.end(), kinds[i].name) != names.end();
            if (is_number && is_asked) kept.emplace_back(kinds[i].name, i);
        }
        return kept;
    }
    static std::vector<size_t> numbers_of(const Kept& kept) {
        std::vector<size_t> numbers;
        for (const auto& [name, number] : kept) numbers.push_back(number);
        return numbers;
    }

    const RowPolicy* chooser() const { return nb::cast<const RowPolicy*>(policy_); }
    RolloutArrays checked() const {
        const RowPolicy::Sizes sizes = chooser()->sizes();
        arrays_.check(pool_, sizes);
        return arrays_.plain(pool_, sizes);
    }

    // What lies at a place among the bytes kept of each end, as an array of rows like `like`.
    nb::object gathered(const Column& like, size_t place) const {
        const std::vector<RolloutEnd> ends = rollout_.ends();
        const Column rows = like.unwritten(ends.size());
        for (size_t i = 0; i < ends.size(); ++i) {
            std::memcpy(rows.data() + i * like.row_bytes(), rollout_.kept(ends[i]) + place,
                        like.row_bytes());
        }
        return rows.object();
    }

    nb::object policy_;
    PyRolloutArrays arrays_;
    const PoolArrays& pool_;
    Kept kinds_;
    std::vector<Column> infos_;
    Rollout rollout_;
};

}  // namespace envfleet
