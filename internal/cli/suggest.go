package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/cli/command"

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
		return command.Usage(errors.Join(c.Help(), fmt.Errorf("name a command: %s", strings.Join(names, ", "))))
	}
	return command.Usage(fmt.Errorf("%s has no command %q: %s", c.CommandPath(), args[0],
		command.Suggest(args[0], names)))
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
			return command.Usage(err)
		case len(rest) > 0 && found.HasAvailableSubCommands():
			return subcommandMissing(found, rest)
		case len(rest) > 0:
			return command.Usage(fmt.Errorf("%s has no command %q", found.CommandPath(), rest[0]))
		}
		show(c, args)
		return nil
	}
}

// flagError turns an error of the flag parser into a usage error. For an unknown
// flag it suggests similar flags.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return command.Usage(fmt.Errorf("%w (see %s --help)", err, c.CommandPath()))
	}
	var flags []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags = append(flags, f.Name)
		}
	})
	if near := command.Nearest(unknown.GetSpecifiedName(), flags); len(near) > 0 &&
		len(unknown.GetSpecifiedName()) > 1 {
		return command.Usage(fmt.Errorf("%w: did you mean --%s? (see %s --help)", err, strings.Join(near, " or --"),
			c.CommandPath()))
	}
	return command.Usage(fmt.Errorf("%w (see %s --help)", err, c.CommandPath()))
}
