// Command weather is a fault-injection drill. Three processes of the service, their databases, broker, witness and
// receivers, and the links between all of them fail at random and at the same time, under the load of many clients. The
// calls and answers of all clients form a history, which package check judges. A run writes a plain-text report,
// weather.txt, and weather.html, in which porcupine draws the relevant calls beside the faults.
//
// make weather runs it. It needs the server that bin/pgtest provides. "weatherdrill check DIRECTORY" judges a recorded
// run again. Exit code 0: the run is consistent with a correct ledger. 1: it is not, or a question could not be
// decided. 2: the drill could not be run or checked.
package main
