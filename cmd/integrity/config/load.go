package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
)

// AddFlags gives a command the flags of the named settings, or of all, and lists the secret variables in its help.
func AddFlags(c *cobra.Command, names ...string) {
	var secrets []string
	for _, s := range Settings() {
		if len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		if s.Secret {
			secrets = append(secrets, fmt.Sprintf("  %-24s %s", s.Variable(), s.Help))
			continue
		}
		flags := c.Flags()
		flags.String(s.Flag(), s.Default, s.Help+" ("+s.Variable()+")")
		if s.Expects == trueOrFalse {
			flags.Lookup(s.Flag()).NoOptDefVal = "true"
		}
		if s.Former != "" {
			flags.String(flagOf(s.Former), "", "former name of --"+s.Flag())
			flags.Lookup(flagOf(s.Former)).Hidden = true
		}
	}
	if secrets != nil {
		c.Long += "\n\nSecrets are read from the environment, or from the file that the variable with _FILE at its end names:\n" + strings.Join(secrets, "\n")
	}
}

// Load reads the environment with the command's flags laid over it, and reports every fault at once.
func Load(a *cli.App, c *cobra.Command) (Config, error) {
	vars := map[string]string{}
	for _, entry := range a.Environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, Prefix) {
			vars[name] = value
		}
	}
	var cfg Config
	var faults []error
	given := map[string]bool{}
	all := cfg.settings()
	for _, s := range all {
		value, err := s.value(vars, c)
		if err == nil {
			given[s.Name] = value != ""
			if value = cmp.Or(value, s.Default); value != "" && s.set(value) != nil {
				err = s.wrong()
			}
		}
		faults = append(faults, err)
	}
	for _, s := range all {
		if given[s.Name] && s.Needs != "" && !given[s.Needs] {
			faults = append(faults, fmt.Errorf("%s must be set together with %s%s", s.Variable(), Prefix, s.Needs))
		}
	}
	cfg.ShardsGiven, cfg.MetricsGiven = given["SHARDS"], given["METRICS_LISTEN"]
	cfg.signingKeyFile = vars[Prefix+"SIGNING_KEY_FILE"]
	cfg.transparencyKeyFile = cmp.Or(vars[Prefix+"TRANSPARENCY_KEY_FILE"], vars[Prefix+"LOG_KEY_FILE"])
	return cfg, errors.Join(faults...)
}

// value is what the flag, the variable or the variable's file says; empty where none is given. Two names of one setting
// in one place are refused, for nobody can know which was meant.
func (s Setting) value(vars map[string]string, c *cobra.Command) (string, error) {
	names := []string{s.Name}
	if s.Former != "" {
		names = append(names, s.Former)
	}
	var variables, flags []string // that are given
	var value string
	for _, name := range names {
		for _, variable := range []string{Prefix + name, Prefix + name + "_FILE"} {
			isFile := strings.HasSuffix(variable, "_FILE")
			if vars[variable] == "" || isFile && !s.Secret {
				continue
			}
			variables = append(variables, variable)
			if value = vars[variable]; isFile {
				text, err := os.ReadFile(value)
				if err != nil {
					return "", fmt.Errorf("%s: %w", variable, err)
				}
				if value = strings.TrimSpace(string(text)); value == "" {
					return "", fmt.Errorf("%s: the file %s is empty; it must hold %s", variable, vars[variable], s.Expects)
				}
			}
		}
		if f := c.Flags().Lookup(flagOf(name)); !s.Secret && f != nil && f.Changed {
			flags = append(flags, "--"+f.Name)
		}
	}
	for _, given := range [][]string{variables, flags} {
		if len(given) > 1 {
			return "", fmt.Errorf("%s are both set: only one may be", strings.Join(given, " and "))
		}
	}
	if flags != nil {
		value = c.Flags().Lookup(strings.TrimPrefix(flags[0], "--")).Value.String()
	}
	return value, nil
}

// wrong says which variable it is and what is right. The value is not quoted.
func (s Setting) wrong() error {
	if s.Secret {
		return fmt.Errorf("%s must be %s", s.Variable(), s.Expects)
	}
	return fmt.Errorf("%s (--%s) must be %s", s.Variable(), s.Flag(), s.Expects)
}

// ClientVariables are not the server's, but no misspellings of the server's either.
func ClientVariables() []string { return []string{VariableAPIKey} }

// UnknownVariables lists variables that look like ours and have no effect: misspelt ones, or some of a later version. They
// are reported and not refused, because a Kubernetes service of our name makes such variables too.
func UnknownVariables(a *cli.App) []string {
	known := ClientVariables()
	for _, s := range Settings() {
		for _, name := range []string{s.Name, s.Former} {
			known = append(known, Prefix+name)
			if s.Secret {
				known = append(known, Prefix+name+"_FILE")
			}
		}
	}
	var unknown []string
	for _, entry := range a.Environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, Prefix) && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}
