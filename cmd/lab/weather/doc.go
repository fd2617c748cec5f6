// Command weather is the drill of bad weather: three processes of the service, their databases, their broker, witness
// and receivers, and the links between all of them fail at random and at the same time, under the load of many clients.
// What every client saw is a history, which package check judges. A run leaves a report in plain text, weather.txt, and
// a page of the telling calls beside the faults, weather.html, which porcupine draws.
//
// make weather runs it. It needs the server that bin/pgtest gives it. "weatherdrill check DIRECTORY" judges a recorded
// run again. Exit code 0: the run is that of a correct ledger. 1: it is not, or something could not be decided. 2: it
// could not be run or checked.
package main
