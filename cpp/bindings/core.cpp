// envfleet._core: the engine as Python sees it. Checks arguments, releases the GIL, nothing more.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "bindings/batch.h"
#include "bindings/discrete_range.h"
#include "bindings/exclusive.h"
#include "bindings/mailroom.h"
#include "bindings/memory.h"
#include "bindings/rows.h"
#include "bindings/stepper.h"
#include "engine/forked_copy.h"
#include "engine/watchdog.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// What the garbage collector must know of a class that holds Python objects in cycles.
template <typename Holder>
PyType_Slot collected[] = {{Py_tp_traverse, reinterpret_cast<void*>(&Holder::traverse)},
                           {Py_tp_clear, reinterpret_cast<void*>(&Holder::clear)},
                           {0, nullptr}};

PyMethodDef block_methods[] = {
    {"__enter__", &envfleet::Exclusive::enter_block, METH_NOARGS, "Raises if somebody is inside."},
    {"__exit__",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&envfleet::Exclusive::leave_block)),
     METH_FASTCALL, "Raises if the fleet was closed meanwhile."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot block_slots[] = {{Py_tp_methods, block_methods}, {0, nullptr}};

void bind_mailroom(nb::module_& m) {
    using envfleet::Mailroom;
    using envfleet::PyMailroom;
    nb::class_<PyMailroom>(m, "Mailroom", "Turns and tickets between a caller and its workers.")
        .def(nb::init<PyMailroom::Memory, uint32_t, uint32_t, bool>(), "memory"_a.noconvert(),
             "workers"_a, "rows"_a, "create"_a)
        .def_static("bytes", &Mailroom::bytes, "workers"_a, "rows"_a, "How much memory it needs.")
        .def("assign", &PyMailroom::assign, "worker"_a, "first"_a, "last"_a,
             "The worker has the rows first..last-1.")
        .def("post", &PyMailroom::post, "first"_a, "last"_a, "command"_a,
             "Give a command to the workers first..last-1.")
        .def("post_again", &PyMailroom::post_again, "worker"_a, "command"_a,
             "Give it to one that took another's place; counts as the same turn.")
        .def("turns", &PyMailroom::turns, "How many turns this object has posted.")
        .def("wait_done", &PyMailroom::wait_done, "timeout"_a, "pause"_a, "yield_"_a,
             "Wait until all of them finished; False when time ran out or a signal came.")
        .def("is_finished", &PyMailroom::is_finished, "worker"_a)
        .def("status", &PyMailroom::status, "worker"_a, "What the worker finished with.")
        .def("is_garbled", &PyMailroom::is_garbled, "worker"_a,
             "Whether its part of the memory holds what neither it nor this side can have written.")
        .def("is_silent", &PyMailroom::is_silent, "silence"_a,
             "Whether all of them finished with this status.")
        .def("send", &PyMailroom::send, "rows"_a.noconvert(), "kind"_a,
             "Give tickets for these rows to whoever has them.")
        .def("num_ready", &PyMailroom::num_ready, "How many results wait to be collected.")
        .def("wait_ready", &PyMailroom::wait_ready, "count"_a, "timeout"_a, "pause"_a, "yield_"_a,
             "Wait for so many results; False when time ran out or a signal came.")
        .def("collect", &PyMailroom::collect, "rows"_a.noconvert(), "statuses"_a.noconvert(),
             "Take out as many results as there is room for, the oldest first; returns how many.")
        .def("kind_out", &PyMailroom::kind_out, "row"_a,
             "The kind of ticket sent for it whose result was not yet collected, if any.")
        .def("received", &PyMailroom::received, "worker"_a,
             "How many turns and tickets it was given.")
        .def("clear", &PyMailroom::clear, "worker"_a, "Forget what a dead worker had not done.")
        .def("take", &PyMailroom::take, "worker"_a, "timeout"_a, "pause"_a, "yield_"_a,
             "Wait for a command or a ticket; None when time ran out or a signal came.")
        .def("finish", &PyMailroom::finish, "worker"_a, "status"_a)
        .def("publish", &PyMailroom::publish, "worker"_a, "row"_a, "status"_a);
    m.attr("FIRST_TICKET") = envfleet::first_ticket;
    m.attr("TICKET_KINDS") = envfleet::ticket_kinds;
}

void bind_rows(nb::module_& m) {
    nb::class_<envfleet::RowWriter>(m, "RowWriter",
                                    "Copies observations into the rows of an array.")
        .def(nb::init<nb::object, nb::object, bool, nb::list, envfleet::RowWriter::OpenPage>(),
             "column"_a, "otherwise"_a, "refuse_nan"_a, "pages"_a, "open_page"_a.noconvert())
        .def("__call__", &envfleet::RowWriter::write, "row"_a, "value"_a.none());

    nb::class_<envfleet::InfoPacker>(m, "InfoPacker",
                                     "Packs info dicts of plain numbers into rows.")
        .def(nb::init<envfleet::InfoPacker::Bytes, envfleet::InfoPacker::Bytes>(),
             "rows"_a.noconvert(), "kinds"_a.noconvert())
        .def("begin", &envfleet::InfoPacker::begin, "Forget the last turn's infos.")
        .def("begin_row", &envfleet::InfoPacker::begin_row, "row"_a, "Forget one row's.")
        .def("put", &envfleet::InfoPacker::put, "row"_a, "info"_a.none(),
             "Pack one like the last; False if it is not.")
        .def("learn", &envfleet::InfoPacker::learn, "kind"_a, "keys"_a, "types"_a, "formats"_a,
             "digest"_a, "Pack dicts with these keys and types from now on.")
        .def("digest", &envfleet::InfoPacker::digest, "row"_a,
             "Of the info that was put last, into this row, or of none; 0 if it was not packed.");

    nb::class_<envfleet::Progress>(m, "Progress",
                                   "Tells another process which row is being worked on.")
        .def(nb::init<envfleet::Progress::Cell>(), "cell"_a.noconvert())
        .def("enter", &envfleet::Progress::enter, "row"_a, "The work on this row begins.");

    nb::class_<envfleet::RowPublisher>(m, "RowPublisher",
                                       "Publishes what a step returned in a row.")
        .def(nb::init<nb::list, envfleet::RowPublisher::Rewards, nb::object, nb::object, bool>(),
             "observations"_a, "rewards"_a.noconvert(), "infos"_a, "progress"_a, "refuse_nan"_a)
        .def("put", &envfleet::RowPublisher::put, "row"_a, "observation"_a.none(),
             "reward"_a.none(), "info"_a.none(), "False if anything about it is not plain.");

    using envfleet::Digests;
    nb::class_<Digests>(m, "Digests", "What environments have shown, as one number per row.")
        .def(nb::init<nb::list, Digests::Rewards, Digests::Cells>(), "observations"_a,
             "rewards"_a.noconvert(), "cells"_a.noconvert())
        .def("begin", &Digests::begin, "row"_a, "info"_a,
             "An episode begins with the observation in the row and an info of this digest.")
        .def("add", &Digests::add, "row"_a, "terminated"_a, "truncated"_a, "info"_a,
             "A step came to the observation and the reward in the row, and to this.");
    m.def(
        "digest_of",
        [](const nb::bytes& bytes, uint64_t before) {
            return envfleet::digest_of(bytes.c_str(), bytes.size(), before);
        },
        "data"_a, "before"_a, "A hash of bytes, after others that came to `before`.");
}

void bind_steps(nb::module_& m) {
    nb::class_<envfleet::StepSlot>(m, "StepSlot", nb::type_slots(collected<envfleet::StepSlot>),
                                   "What is called to step an environment.")
        .def(nb::init<>())
        .def("fuse", &envfleet::StepSlot::fuse, "env"_a, "wrappers"_a, "time_limit"_a.none(),
             "otherwise"_a.none(),
             "From now on `env` is stepped, inside wrappers that only pass actions on and a time "
             "limit; by `otherwise` while they do more.")
        .def("__call__", &envfleet::StepSlot::step, "action"_a.none());

    using envfleet::DiscreteRange;
    nb::class_<DiscreteRange>(m, "DiscreteRange", "What a Discrete space contains, told quickly.")
        .def(nb::init<nb::object, nb::object, nb::object, nb::object, nb::type_object, int64_t,
                      int64_t>(),
             "n"_a, "start"_a, "dtype"_a, "method"_a, "kind"_a, "first"_a, "end"_a)
        .def_static("method_of", &DiscreteRange::method_of, "spaces"_a,
                    "A method contains() for a class whose objects have such a range as `_quick`.");

    using envfleet::RowStepper;
    nb::class_<RowStepper>(m, "RowStepper", nb::type_slots(collected<RowStepper>),
                           "Steps the environments of some rows in turn.")
        .def(nb::init<nb::object, nb::object, nb::object, nb::object, RowStepper::Flags,
                      RowStepper::Flags, RowStepper::Flags, RowStepper::Due, nb::object>(),
             "publisher"_a.none(), "infos"_a, "progress"_a, "actions"_a.none(),
             "terminated"_a.noconvert(), "truncated"_a.noconvert(), "restarted"_a.noconvert(),
             "due"_a.noconvert(), "digests"_a.none())
        .def("place", &RowStepper::place, "row"_a, "slot"_a, "The environment of a row.")
        .def("begin", &RowStepper::begin, "actions"_a.none(),
             "A turn of all rows begins, with these actions or those that lie in their array.")
        .def("aim", &RowStepper::aim, "first"_a, "actions"_a,
             "The next run is to step the rows from `first` on, one an action.")
        .def("run", &RowStepper::run, "row"_a,
             "Step the rows from this one on; the first that is not plain, with what it returned.")
        .def("run_all", &RowStepper::run_all, "actions"_a.none(),
             "A turn of all rows: begin and run in one, and none is at work if all are done.")
        .def_prop_ro("row", &RowStepper::row, "The row that was stepped last.");
}

void bind_fleet(nb::module_& m) {
    using envfleet::Exclusive;
    nb::class_<Exclusive>(m, "Exclusive", nb::type_slots(block_slots), nb::is_weak_referenceable(),
                          "Lets one thread at a time use a fleet.")
        .def(nb::init<nb::object>(), "refuse"_a)
        .def("begin_closing", &Exclusive::begin_closing,
             "Nobody enters from now on; False if that was said before.")
        .def("hand_over", &Exclusive::hand_over, "close"_a,
             "Leave the closing to whoever is inside; False if nobody is.")
        .def("settle", &Exclusive::settle, "Close, if that was left to whoever comes out.")
        .def("check", &Exclusive::check, "Raise if whoever is inside is to leave.")
        .def("forget_others", &Exclusive::forget_others, "To be called in a forked copy.")
        .def_prop_ro("owner", &Exclusive::owner, "The thread inside, 0 for nobody.");

    using envfleet::Batch;
    nb::class_<Batch>(m, "Batch", nb::type_slots(collected<Batch>),
                      "The arrays of a fleet as its caller sees them.")
        .def(nb::init<nb::object, nb::object, nb::object, nb::object, nb::object, Batch::Kinds>(),
             "actions"_a, "observations"_a, "rewards"_a, "terminated"_a, "truncated"_a,
             "info_kinds"_a.noconvert())
        .def("put", &Batch::put, "actions"_a.none(),
             "Store actions that are one array that fits; False if they are not.")
        .def("put_some", &Batch::put_some, "rows"_a.noconvert(), "actions"_a.none(),
             "The same for the actions of some rows.")
        .def("has_infos", &Batch::has_infos, "Whether any environment has any.")
        .def("results", &Batch::results, "observations"_a.none(), "copy"_a, "infos"_a,
             "What a step returns; observations that are not given are those that lie here.");
    m.def(
        "fresh_copy", [](nb::handle array) { return envfleet::Column(array).copy(); }, "array"_a,
        "A copy of an array, to be handed out: it begins on a cache line.");
    m.def("fresh_rows", &envfleet::fresh_rows, "array"_a, "rows"_a.noconvert(),
          "The same of some rows, in their order.");
}

void bind_process(nb::module_& m) {
    m.def("make_private", &envfleet::make_private, "memory"_a.noconvert(),
          "Turn whole pages of shared memory into a copy of this process's own, where they are.");
    m.def("count_up", &envfleet::count_up, "cell"_a.noconvert(),
          "Add one to a number that other processes may add to as well.");
    m.def(
        "end_forked_copies",
        [](nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> memory,
           nb::ndarray<uint64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> progress) {
            if (progress.shape(0) == 0 || progress.shape(1) < 3) {
                throw nb::value_error("expected three cells or more a row");
            }
            envfleet::ForkedCopyGuard::protect(memory.data(), memory.size(), progress.data(),
                                               progress.shape(0), progress.shape(1));
        },
        "memory"_a.noconvert(), "progress"_a.noconvert(),
        "From now on a forked copy of this process that writes to `memory`, which must stay, ends; "
        "the third cell of "
        "the row at work, in the first, counts that.");
    m.def("exit_with_process", &envfleet::exit_with_process, "pid"_a,
          "From now on this process ends at once when the process `pid` ends.");
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "The compiled part of envfleet.";
    nb::set_leak_warnings(false);  // a fleet that lives until the interpreter ends is no leak
    envfleet::import_numpy();
    bind_mailroom(m);
    bind_rows(m);
    bind_steps(m);
    bind_fleet(m);
    bind_process(m);
}
