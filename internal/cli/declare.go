package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/daemon/stored"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/file"
	"fairlead/internal/model"

	"github.com/spf13/cobra"
)

// exitDiffers is the exit code of plan if there is something to do, as with
// diff(1) and `kubectl diff`. For plan every failure is exitUsage.
const exitDiffers = 1

// declaredFiles are the files that a command reads.
type declaredFiles struct{ names []string }

func (f *declaredFiles) flags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&f.names, "file", "f", nil, "file that declares networks, attachments, publishes and "+
		"services; - for the standard input (repeatable)")
	_ = c.MarkFlagFilename("file", "yaml", "yml", "json") // fails only for an unknown flag
}

// maxFile is the maximum size of a file in bytes: the daemon accepts no larger
// request.
const maxFile = 1 << 20

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
		if in.Text, err = io.ReadAll(io.LimitReader(from, maxFile+1)); err != nil {
			return nil, fmt.Errorf("read declarations: %w", err)
		}
		if len(in.Text) > maxFile {
			return nil, fmt.Errorf("read %s: it is larger than %d bytes: split it into several sets of files",
				in.Name, maxFile)
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
func (r *remote) declaring(c *cobra.Command, f *declaredFiles, dry bool, spec func(api.Spec) api.Spec) (result api.Result, err error) {
	set, err := f.read(c.InOrStdin())
	if err != nil {
		return result, usage(err)
	}
	err = r.call(c.Context(), func(client *admin.Client) error {
		var failed error
		result, failed = client.Apply(c.Context(), spec(set.Spec), dry)
		return set.Locate(failed)
	})
	return result, err
}

func all(s api.Spec) api.Spec { return s }

// none returns the set without its declarations.
func none(s api.Spec) api.Spec { return api.Spec{Set: s.Set} }

const fileHelp = "A file declares networks, attachments, publishes and virtual services in YAML or JSON. Its\n" +
	"keys are the flags of the commands. All files given with -f are one set. The key `name` in\n" +
	"one of them names the set, so that a host can have several sets. Objects that commands or\n" +
	"Docker created are never changed."

func newPlan(a *app) *cobra.Command {
	r := &remote{app: a, dryRun: true}
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
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			spec := all
			if destroy {
				spec = none
			}
			result, err := r.declaring(c, &f, true, spec)
			if err == nil {
				err = r.printPlan(result)
			}
			if err != nil && !errors.As(err, new(commandExit)) {
				err = commandExit{exitUsage, err}
			}
			if err != nil {
				return err
			}
			if result.Changed {
				return commandExit{code: exitDiffers}
			}
			return nil
		},
	}
	r.flags(c)
	f.flags(c)
	c.Flags().BoolVar(&destroy, "destroy", false, "print what `fairlead destroy` would do")
	return c
}

// printPlan prints the changes as comments, then the commands.
func (r *remote) printPlan(result api.Result) error {
	r.notes(result.Notes)
	if r.output == "json" {
		return r.json(result)
	}
	for _, change := range result.Changes {
		if err := r.out.line("# %s", change); err != nil {
			return err
		}
	}
	if len(result.Changes) == 0 {
		if err := r.out.line("# nothing to do"); err != nil {
			return err
		}
	}
	return r.printCommands(result.Plan)
}

func newApply(a *app) *cobra.Command {
	r := &remote{app: a}
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
			"  fairlead get | fairlead apply -f -",
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return r.applyFiles(c, &f, all) },
	}
	r.flags(c)
	f.flags(c)
	return c
}

func newDestroy(a *app) *cobra.Command {
	r := &remote{app: a}
	var f declaredFiles
	c := &cobra.Command{
		Use:   "destroy -f FILE…",
		Short: "Remove everything that a set of files declares",
		Long: "Remove everything that `fairlead apply` created for a set of files. Only the set's name is\nread " +
			"from the files.\n\n" + fileHelp,
		Example: "  fairlead plan --destroy -f fairlead.yaml\n  fairlead destroy -f fairlead.yaml",
		Args:    arguments(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return r.applyFiles(c, &f, none) },
	}
	r.flags(c)
	f.flags(c)
	return c
}

// applyFiles applies the files and prints the changes.
func (r *remote) applyFiles(c *cobra.Command, f *declaredFiles, spec func(api.Spec) api.Spec) error {
	result, err := r.declaring(c, f, false, spec)
	if err != nil {
		return err
	}
	return r.printApplied(result)
}

// printApplied prints one line per change.
func (r *remote) printApplied(result api.Result) error {
	r.notes(result.Notes)
	if r.output == "json" {
		return r.json(result)
	}
	var lines []string
	for _, change := range result.Changes {
		line := change.String()
		for _, v := range result.Attachments {
			if change.Kind == "attachment" && change.Name == v.Name && v.Status == api.Up {
				line += fmt.Sprintf("  %s  %s", v.InterfaceName(), orDash(strings.Join(addresses(v), " ")))
			} else if change.Kind == "attachment" && change.Name == v.Name {
				line += ", waits for " + v.Ref
			}
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = []string{"nothing to do"}
	}
	return r.out.lines(lines...)
}

func newGet(a *app) *cobra.Command {
	r := &remote{app: a}
	c := &cobra.Command{
		Use:   "get",
		Short: "Print the desired state as a file for apply",
		Long: "Print the networks, attachments, publishes and services that commands and files created,\n" +
			"as YAML for `fairlead apply`, or as JSON with -o json. Applying the output changes nothing.\n" +
			"Objects that Docker created are not printed: compose files declare them.",
		Example: "  fairlead get > fairlead.yaml\n  fairlead get -o json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return r.read(c.Context(), func(client *admin.Client) error {
				state, err := client.State(c.Context())
				if err != nil {
					return err
				}
				return r.printState(state)
			}, func(w model.Desired) error {
				spec, notes := stored.Spec(w)
				return r.printState(admin.State{Spec: spec, Notes: notes})
			})
		},
	}
	r.flags(c)
	return c
}

func (r *remote) printState(state admin.State) error {
	r.notes(state.Notes)
	if r.output == "json" {
		return file.WriteJSON(r.out.jsonDocument(), state.Spec)
	}
	return file.Write(r.out.document(), state.Spec)
}
