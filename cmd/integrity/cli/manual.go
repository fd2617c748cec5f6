package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// Manual holds the help of commands by their whole names, such as "key create".
type Manual map[string]cobra.Command

// NewManual reads a text that has for each command a line "= NAME ARGUMENT…", a line that is its short help and, where
// there is more to say, an empty line and its long help. Arguments are in capitals, those that may be missing in brackets.
func NewManual(text string) Manual {
	m := Manual{}
	for _, part := range strings.Split("\n"+text, "\n= ")[1:] {
		use, help, _ := strings.Cut(part, "\n")
		short, long, _ := strings.Cut(help, "\n")
		words := strings.Fields(use)
		first := len(words) // of the arguments
		for first > 0 && strings.ToLower(words[first-1]) != words[first-1] {
			first--
		}
		m[strings.Join(words[:first], " ")] = cobra.Command{
			Use: strings.Join(words[first-1:], " "), Short: short, Long: strings.TrimSpace(long),
			Args: Arguments(len(words)-first-strings.Count(use, "["), len(words)-first),
		}
	}
	return m
}

// Command is the command of that name, which does nothing yet.
func (m Manual) Command(name string) *cobra.Command {
	c, found := m[name]
	if !found {
		panic("the manual lacks the command " + name)
	}
	return &c
}
