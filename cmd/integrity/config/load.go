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
			secrets = append(secrets, fmt.Sprintf("  %-29s %s", s.Variable(), s.Help))
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
	given, files := map[string]bool{}, map[string]string{}
	all := cfg.settings()
	for _, s := range all {
		name, value, file, err := s.read(vars, c)
		given[s.Name], files[s.Name] = value != "" || err != nil, file
		if value = cmp.Or(value, s.Default); err == nil && value != "" && s.set(value) != nil {
			err = s.wrong(name)
		}
		faults = append(faults, err)
	}
	for _, s := range all {
		if given[s.Name] && s.Needs != "" && !given[s.Needs] {
			faults = append(faults, fmt.Errorf("%s must be set together with %s%s", s.Variable(), Prefix, s.Needs))
		}
	}
	cfg.ShardsGiven, cfg.MetricsGiven = given["SHARDS"], given["METRICS_LISTEN"]
	cfg.signingKeyFile, cfg.transparencyKeyFile = files["SIGNING_KEY"], files["TRANSPARENCY_KEY"]
	return cfg, errors.Join(faults...)
}

// read is what the flag, the variable or the variable's file says, under which name, and in which file; the value is
// empty where none is given. Two names of one setting in one place are refused, for nobody can know which was meant.
func (s Setting) read(vars map[string]string, c *cobra.Command) (name, value, file string, err error) {
	var variables, flags []string // that are given
	for _, known := range []string{s.Name, s.Former} {
		if known == "" {
			continue
		}
		if text := vars[Prefix+known]; text != "" {
			variables, name, value = append(variables, Prefix+known), known, text
		}
		if path := vars[Prefix+known+"_FILE"]; path != "" && s.Secret {
			variables, name, file = append(variables, Prefix+known+"_FILE"), known, path
		}
	}
	for _, known := range []string{s.Name, s.Former} {
		if f := c.Flags().Lookup(flagOf(known)); f != nil && f.Changed && !s.Secret {
			flags, name, value = append(flags, "--"+f.Name), known, f.Value.String()
		}
	}
	for _, several := range [][]string{variables, flags} {
		if len(several) > 1 {
			return name, "", "", fmt.Errorf("%s are both set: only one may be", strings.Join(several, " and "))
		}
	}
	if file == "" {
		return name, value, "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return name, "", file, fmt.Errorf("%s: %w", variables[0], err)
	}
	if value = strings.TrimSpace(string(text)); value == "" {
		err = fmt.Errorf("%s: the file %s is empty; it must hold %s", variables[0], file, s.Expects)
	}
	return name, value, file, err
}

// wrong says which variable it is, by the name that was given, and what is right. The value is not quoted.
func (s Setting) wrong(name string) error {
	if s.Secret {
		return fmt.Errorf("%s%s must be %s", Prefix, name, s.Expects)
	}
	return fmt.Errorf("%s%s (--%s) must be %s", Prefix, name, flagOf(name), s.Expects)
}

// UnknownVariables lists variables that look like ours and have no effect: misspelt ones, or some of a later version. They
// are reported and not refused, because a Kubernetes service of our name makes such variables too.
func UnknownVariables(a *cli.App) []string {
	known := []string{VariableAPIKey} // a client's, and no misspelling of one of the server's
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
