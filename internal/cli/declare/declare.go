// Package declare has the commands that declare a host's state in files.
package declare

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/daemon/stored"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/file"
	"fairlead/internal/model"

	"github.com/spf13/cobra"
)

// exitDiffers is the exit code of plan if there is something to do, as with
// diff(1) and `kubectl diff`. For plan every failure is command.ExitUsage.
const exitDiffers = 1

// declaredFiles are the files that a command reads.
type declaredFiles struct {
	names []string
	// adopt makes objects of commands those of the files, also if they differ.
	adopt bool
}

// adoptFlag adds the flag --adopt.
func (f *declaredFiles) adoptFlag(c *cobra.Command) {
	c.Flags().BoolVar(&f.adopt, "adopt", false, "adopt declared objects that commands have created also if they "+
		"differ, and change them (default: refuse)")
}

func (f *declaredFiles) flags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&f.names, "file", "f", nil, "file that declares networks, attachments, publishes and "+
		"services; - for the standard input (repeatable)")
	_ = c.MarkFlagFilename("file", "yaml", "yml", "json") // fails only for an unknown flag
}

// read reads the files.
func (f *declaredFiles) read(stdin io.Reader) (*file.Set, error) {
	if len(f.names) == 0 {
		return nil, errors.New("no file given: name one with -f, e.g. -f fairlead.yaml, or -f - for the standard input")
	}
	var inputs []file.Input
	for _, name := range f.names {
		in := file.Input{Name: name}
		var err error
		from := stdin
		if name == "-" {
			in.Name = "standard input"
		} else {
			var opened *os.File
			if opened, err = os.Open(name); err != nil {
				return nil, fmt.Errorf("read declarations: %w", err)
			}
			defer opened.Close()
			from = opened
		}
		if in.Text, err = io.ReadAll(io.LimitReader(from, command.MaxFile+1)); err != nil {
			return nil, fmt.Errorf("read declarations: %w", err)
		}
		if len(in.Text) > command.MaxFile {
			return nil, fmt.Errorf("read %s: it is larger than %d bytes: split it into several sets of files",
				in.Name, command.MaxFile)
		}
		if len(bytes.TrimSpace(in.Text)) == 0 { // e.g. the command that should have written it failed
			return nil, fmt.Errorf("read %s: it is empty: write {} to declare nothing", in.Name)
		}
		inputs = append(inputs, in)
	}
	return file.Read(inputs)
}

// declaring sends the files' declarations to the daemon. Errors name the line of
// each mistake.
func declaring(r *command.Remote, c *cobra.Command, f *declaredFiles, dry bool,
	spec func(api.Spec) api.Spec) (result api.Result, err error) {
	set, err := f.read(c.InOrStdin())
	if err != nil {
		return result, command.Usage(err)
	}
	declared := spec(set.Spec)
	declared.Adopt = f.adopt
	err = r.Call(c.Context(), func(client *admin.Client) error {
		var failed error
		result, failed = admin.Apply.Do(c.Context(), client, admin.SpecRequest{Spec: declared, DryRun: dry})
		return set.Locate(failed)
	})
	return result, err
}

func all(s api.Spec) api.Spec { return s }

// none returns the set without its declarations.
func none(s api.Spec) api.Spec { return api.Spec{Set: s.Set} }

const fileHelp = "A file declares networks, attachments, publishes and virtual services in YAML or JSON. Its\n" +
	"keys are the flags of the commands. All files given with -f are one set. The key `name` in\n" +
	"one of them names the set, so that a host can have several sets. Declared objects that a command\n" +
	"has created are adopted if they are as declared: the files own them from then on. Those that\n" +
	"differ are refused, unless --adopt is given. Objects of Docker and of other sets never change."

// NewPlan returns the command `fairlead plan`.
func NewPlan(a *command.App) *cobra.Command {
	r := &command.Remote{App: a, DryRun: true}
	var f declaredFiles
	var destroy bool
	c := &cobra.Command{
		Use:   "plan -f FILE…",
		Short: "Print what apply would do, as commands",
		Long: "Print what `fairlead apply` would do: the change to each network, attachment, publish and\n" +
			"service, and the commands that would make it. Nothing is changed.\n\n" + fileHelp + "\n\n" +
			"The exit code is 0 if there is nothing to do, 1 if there is something to do, and 2 after an\n" +
			"error, as with diff(1) and `kubectl diff`.",
		Example: "  fairlead plan -f fairlead.yaml\n  fairlead plan --destroy -f fairlead.yaml",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			spec := all
			if destroy {
				spec = none
			}
			result, err := declaring(r, c, &f, true, spec)
			if err == nil {
				err = printPlan(r, result)
			}
			if err != nil && !errors.As(err, new(command.Exit)) {
				err = command.Exit{Code: command.ExitUsage, Why: err}
			}
			if err != nil {
				return err
			}
			if result.Changed {
				return command.Exit{Code: exitDiffers}
			}
			return nil
		},
	}
	r.Flags(c)
	f.flags(c)
	f.adoptFlag(c)
	c.Flags().BoolVar(&destroy, "destroy", false, "print what fairlead destroy would do")
	return c
}

// printPlan prints the changes as comments, then the commands.
func printPlan(r *command.Remote, result api.Result) error {
	r.Notes(result.Notes)
	if r.Output == "json" {
		return r.JSON(result)
	}
	lines := []string{"# nothing to do"}
	if len(result.Changes) > 0 {
		lines = nil
	}
	for _, change := range result.Changes {
		lines = append(lines, "# "+change.String())
	}
	if err := r.Out.Lines(lines...); err != nil {
		return err
	}
	return r.PrintCommands(result.Plan)
}

// NewApply returns the command `fairlead apply`.
func NewApply(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var f declaredFiles
	c := &cobra.Command{
		Use:   "apply -f FILE…",
		Short: "Apply the declarations of files to the host",
		Long: "Apply the declarations of files to the host, in one step: create what is new, change what\n" +
			"differs, and remove what an earlier apply of the set declared and this one does not. If any\n" +
			"part fails, nothing is changed. Applying the same files again changes nothing. Attachments\n" +
			"whose sandbox does not run are applied when it starts.\n\n" + fileHelp,
		Example: "  fairlead apply -f fairlead.yaml\n" +
			"  fairlead apply -f networks.yaml -f shop.yaml\n" +
			"  fairlead get | fairlead apply -f -   # the files adopt what commands have created",
		Args: command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return applyFiles(r, c, &f, all) },
	}
	r.Flags(c)
	f.flags(c)
	f.adoptFlag(c)
	return c
}

// NewDestroy returns the command `fairlead destroy`.
func NewDestroy(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var f declaredFiles
	c := &cobra.Command{
		Use:   "destroy -f FILE…",
		Short: "Remove everything that a set of files declares",
		Long: "Remove everything that `fairlead apply` created for a set of files. Only the set's name is\nread " +
			"from the files.\n\n" + fileHelp,
		Example: "  fairlead plan --destroy -f fairlead.yaml\n  fairlead destroy -f fairlead.yaml",
		Args:    command.Arguments(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return applyFiles(r, c, &f, none) },
	}
	r.Flags(c)
	f.flags(c)
	return c
}

// applyFiles applies the files and prints the changes.
func applyFiles(r *command.Remote, c *cobra.Command, f *declaredFiles, spec func(api.Spec) api.Spec) error {
	result, err := declaring(r, c, f, false, spec)
	if err != nil {
		return err
	}
	return r.PrintApplied(result)
}

// NewGet returns the command `fairlead get`.
func NewGet(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:   "get",
		Short: "Print the desired state as a file for apply",
		Long: "Print the networks, attachments, publishes and services that commands and files created,\n" +
			"as YAML for `fairlead apply`, or as JSON with -o json. Applying the output changes nothing on the\n" +
			"host: the files adopt what commands created. Objects of Docker and of the cluster are not\n" +
			"printed.",
		Example: "  fairlead get > fairlead.yaml\n  fairlead get -o json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return command.Show(c.Context(), r, admin.ReadState.Do, func(state admin.State) error {
				return printState(r, state)
			}, func(w model.Desired) error {
				spec, notes := stored.Spec(w)
				return printState(r, admin.State{Spec: spec, Notes: notes})
			})
		},
	}
	r.Flags(c)
	return c
}

func printState(r *command.Remote, state admin.State) error {
	r.Notes(state.Notes)
	if r.Output == "json" {
		return file.WriteJSON(r.Out.JSONDocument(), state.Spec)
	}
	return file.Write(r.Out.Document(), state.Spec)
}
