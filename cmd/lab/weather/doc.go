// Command weather is the drill of bad weather: three processes of the service, their databases, their broker, witness and
// receivers, and the links between all of them fail at random and at the same time, under the load of many clients. What
// every client saw is a history, which package check judges and package report shows.
//
// make weather runs it. It needs the server that bin/pgtest gives it.
package main
