// Package analyzer runs domain/analysis over a file in a child process of the same program.
package analyzer
