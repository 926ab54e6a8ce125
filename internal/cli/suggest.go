package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// requireSubcommands makes every command that only groups subcommands return the
// same error for a missing or unknown name. The error lists the subcommands, or
// the similar ones.
func requireSubcommands(c *cobra.Command) {
	if c.HasAvailableSubCommands() {
		c.RunE = subcommandMissing
		c.Args = cobra.ArbitraryArgs
	}
	for _, sub := range c.Commands() {
		requireSubcommands(sub)
	}
}

// subcommandMissing prints the help if no subcommand is named. Its error is a
// usage error.
func subcommandMissing(c *cobra.Command, args []string) error {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if len(args) == 0 {
		return usage(errors.Join(c.Help(), fmt.Errorf("name a command: %s", strings.Join(names, ", "))))
	}
	return usage(fmt.Errorf("%s has no command %q: %s", c.CommandPath(), args[0], suggest(args[0], names)))
}

// initHelpCommand adds cobra's help command, and makes it return a usage error
// for an unknown command instead of exit code 0.
func initHelpCommand(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	i := slices.IndexFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == "help" })
	help := root.Commands()[i]
	show := help.Run
	help.Run = nil
	help.RunE = func(c *cobra.Command, args []string) error {
		found, rest, err := root.Find(args)
		switch {
		case err != nil:
			return usage(err)
		case len(rest) > 0 && found.HasAvailableSubCommands():
			return subcommandMissing(found, rest)
		case len(rest) > 0:
			return usage(fmt.Errorf("%s has no command %q", found.CommandPath(), rest[0]))
		}
		show(c, args)
		return nil
	}
}

// suggest returns the candidates that are similar to the name, or all candidates
// if none is similar.
func suggest(name string, candidates []string) string {
	if near := nearest(name, candidates); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	return "want one of " + strings.Join(candidates, ", ")
}

// nearest returns the candidates that cobra would suggest for a misspelled
// command: those with an edit distance of at most two, and those that begin with
// the name.
func nearest(name string, candidates []string) []string {
	c := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, candidate := range candidates {
		c.AddCommand(&cobra.Command{Use: candidate, Run: func(*cobra.Command, []string) {}})
	}
	near := c.SuggestionsFor(name)
	slices.Sort(near)
	return slices.Compact(near)
}

// flagError turns an error of the flag parser into a usage error. For an unknown
// flag it suggests similar flags.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usage(fmt.Errorf("%w (see %s --help)", err, c.CommandPath()))
	}
	var flags []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags = append(flags, f.Name)
		}
	})
	if near := nearest(unknown.GetSpecifiedName(), flags); len(near) > 0 && len(unknown.GetSpecifiedName()) > 1 {
		return usage(fmt.Errorf("%w: did you mean --%s? (see %s --help)", err, strings.Join(near, " or --"), c.CommandPath()))
	}
	return usage(fmt.Errorf("%w (see %s --help)", err, c.CommandPath()))
}
