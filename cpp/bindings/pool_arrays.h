// The arrays that a pool reads and writes, as Python gives them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "bindings/infos.h"
#include "engine/rows.h"

namespace envfleet {

namespace nb = nanobind;

inline std::vector<Column> columns_of(const nb::list& arrays) {
    std::vector<Column> columns;
    for (nb::handle array : arrays) columns.emplace_back(array);
    return columns;
}

// The arrays of a pool, one row per environment; and how Python puts observations together that are
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
                throw nb::value_error("flags: expected one byte per environment");
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

    // Refuses arrays whose rows are not of these sizes: of an action, of each part of an
    // observation.
    void check_sizes(size_t action, const std::vector<size_t>& observation) const {
        if (action != actions.row_bytes()) {
            throw nb::value_error("the actions array does not fit this environment");
        }
        for (const auto* columns : {&observations, &final_observations}) {
            bool fit = columns->size() == observation.size();
            for (size_t i = 0; fit && i < observation.size(); ++i) {
                fit = (*columns)[i].row_bytes() == observation[i];
            }
            if (!fit) throw nb::value_error("the observation arrays do not fit this environment");
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
            if (column.rows() != rows) throw nb::value_error("expected one row per environment");
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

}  // namespace envfleet
