// What a step of a pool returns to Python.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/infos.h"
#include "bindings/pool_arrays.h"
#include "engine/any_pool.h"

namespace envfleet {

namespace nb = nanobind;

// An array to be handed out, which the threads fill while they step.
struct FreshArray {
    explicit FreshArray(const Column& like)
        : column(like.unwritten(like.rows())), twin{like.data(), column.data(), like.row_bytes()} {}

    Column column;
    Twin twin;
};

class Results {
  public:
    // Of a pool with these arrays, which outlive this, and these kinds of infos.
    Results(const PoolArrays& arrays, std::vector<InfoColumn> kinds, Autoreset autoreset)
        : arrays_(arrays),
          infos_(std::move(kinds), arrays.infos, arrays.final_infos),
          autoreset_(autoreset) {}

    nb::object observations(bool copy) const {
        if (!arrays_.batch_observations.is_none()) return arrays_.batch_observations(copy);
        const Column& only = arrays_.observations.front();
        return copy ? only.copy() : only.object();
    }

    // The infos of these rows' last turns.
    nb::dict infos(const Selection& rows) const {
        nb::dict result;
        const auto* turns = reinterpret_cast<const Turn*>(arrays_.turns.data());
        if (autoreset_ == Autoreset::same_step) add_final(result, turns, rows);
        if (!infos_.empty()) infos_.add_current(result, turns, rows);
        return result;
    }

  private:
    void add_final(nb::dict& infos, const Turn* turns, const Selection& rows) const {
        std::vector<uint8_t> ended(rows.size());
        for (size_t i = 0; i < ended.size(); ++i) {
            ended[i] = turns[rows[i]] == Turn::ended_and_reset;
        }
        if (std::find(ended.begin(), ended.end(), 1) == ended.end()) return;
        InfoColumns::add(infos, "final_obs", final_observations(rows, ended), ended);
        InfoColumns::add(infos, "final_info", infos_.final_infos(rows, ended), ended);
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

    const PoolArrays& arrays_;
    InfoColumns infos_;
    Autoreset autoreset_;
};

}  // namespace envfleet
