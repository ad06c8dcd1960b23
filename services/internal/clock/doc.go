// Package clock says when something is due, and wakes one core when it is, for the schedules of agents. The
// cron listener uses its schedules alone, and reads the time itself.
//
// # Subjects
//
// The server's clock decides. For each entry of an owner one message schedule is stored on
// cron.<owner>.<entry> in stream CRON; when it is due, the server publishes it on
// occurred.<owner>.<entry>, whether or not a core runs. One of them consumes it there
// (durable consumer <owner>).
//
// # Guarantee
//
// What is due is delivered until it is acknowledged, possibly more than once. The owner keeps a
// record of what has occurred, so that a repetition changes nothing, and lays the entry's next
// schedule before it acknowledges.
//
// # Summer time
//
// Schedules are read on the wall clock of their zone. One whose hour field is * follows elapsed time:
// none of its occurrences is skipped or doubled. For every other, what falls into the skipped hour
// occurs once, at the moment the clock is put forward, and what falls into the repeated hour occurs
// only the first time. @every follows elapsed time.
//
// # Failure
//
// While the bus is unavailable nothing is due; when it is back, the server delivers what fell due
// meanwhile. An owner lays its schedules again every now and then, in case one is lost.
package clock
