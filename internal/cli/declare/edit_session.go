package declare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/escape"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/file"
)

// editSession is one run of `fairlead edit`.
type editSession struct {
	r *command.Remote
	// kind and name are empty to edit all objects.
	kind, name string
	// before has the objects as they were, and notes what it lacks.
	before api.Spec
	notes  []string
	path   string
}

// run edits the objects. If it returns an error after the user has changed the file, the file stays.
func (s *editSession) run(ctx context.Context) error {
	if err := s.r.Call(ctx, func(client *admin.Client) error { return s.fetch(ctx, client) }); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fairlead-edit-") // with mode 0700, also for what the editor writes beside the file
	if err != nil {
		return fmt.Errorf("create the file to edit: %w", err)
	}
	s.path = filepath.Join(dir, editedName)
	keep, err := s.loop(ctx)
	if keep {
		err = errors.Join(err, fmt.Errorf("your changes are in %s: repeat them with `fairlead edit`, and delete the file",
			s.path))
		if sig, ok := context.Cause(ctx).(command.Interrupted); ok {
			return command.Exit{Code: command.ExitSignal + int(sig), Why: err}
		}
		return err
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// editedName is the name of the file to edit.
const editedName = "fairlead.yaml"

// fetch reads the objects to edit.
func (s *editSession) fetch(ctx context.Context, client *admin.Client) error {
	state, err := admin.ReadEditable.Do(ctx, client)
	if err != nil {
		return err
	}
	s.before, s.notes = state.Spec, state.Notes
	switch {
	case s.kind == "" && len(s.before.Networks)+len(s.before.Attachments)+len(s.before.Services) > 0:
		return nil
	case s.kind == "":
		return errors.New("edit: commands have created nothing to edit: create e.g. a network with `fairlead network " +
			"create`, or change the files that declare the objects")
	case slices.Contains(namesOf(s.before, s.kind), s.name):
		s.before, s.notes = only(s.before, s.kind, s.name), nil
		return nil
	}
	if all, err := admin.ReadState.Do(ctx, client); err == nil && slices.Contains(namesOf(all.Spec, s.kind), s.name) {
		return api.Faultf(api.Conflict, "edit %s %s: files declare it: change the files and run `fairlead apply`", s.kind,
			s.name)
	}
	return api.Faultf(api.NotFound, "edit %s %s: commands have created no such %s: see `fairlead get`", s.kind, s.name,
		s.kind)
}

// loop opens the editor until the file has no mistake, and applies it. keep reports whether the file has changes that
// are not applied.
func (s *editSession) loop(ctx context.Context) (keep bool, err error) {
	var yaml strings.Builder
	if err := file.Write(&yaml, s.before); err != nil {
		return false, err
	}
	text := yaml.String()
	var found file.Mistakes
	for {
		if err := s.write(text, found); err != nil {
			return len(found) > 0, err
		}
		opened := s.openEditor()
		edited, err := s.read()
		keep = edited != yaml.String() && strings.TrimSpace(edited) != ""
		switch err := errors.Join(opened, err, context.Cause(ctx)); {
		case err != nil:
			return keep, err
		case !keep:
			return false, s.unchanged()
		case len(found) > 0 && edited == text:
			return true, command.Usage(errors.Join(errors.New("edit: the file still has mistakes"), found))
		}
		text = edited
		if err = s.apply(ctx, text); !errors.As(err, &found) {
			return err != nil && !s.isApplied(ctx, text), err
		}
	}
}

// isApplied reports whether the host has what a text declares, although its apply returned an error: a lease may be
// missing, or the output may be closed.
func (s *editSession) isApplied(ctx context.Context, text string) bool {
	set, err := file.Read([]file.Input{{Name: editedName, Text: []byte(text)}})
	if err != nil {
		return false
	}
	client := admin.NewClient(s.r.Socket)
	now, err := admin.ReadEditable.Do(ctx, client)
	if err != nil {
		return false
	}
	if s.kind != "" {
		now.Spec = only(now.Spec, s.kind, s.name)
	}
	spec := set.Spec
	spec.Edit = editOf(now.Spec)
	result, err := admin.Apply.Do(ctx, client, admin.SpecRequest{Spec: spec, DryRun: true})
	return err == nil && !result.Changed
}

// editOf returns the edit of objects as they are now.
func editOf(now api.Spec) *api.Edit {
	return &api.Edit{Networks: now.Networks, Attachments: now.Attachments, Services: now.Services}
}

// unchanged says that nothing has changed.
func (s *editSession) unchanged() error {
	if s.r.Output == "json" {
		return s.r.JSON(api.Result{})
	}
	return s.r.Out.Line("no changes")
}

// write writes the text, with a header that has the mistakes in it. Their lines are those of the text.
func (s *editSession) write(text string, found file.Mistakes) error {
	header := []string{"Change the objects, save the file and close the editor. Without a change, nothing happens."}
	if s.kind == "" {
		header = append(header, "What is deleted here is removed. Objects that files declare are not here.")
	}
	for _, note := range s.notes {
		header = append(header, escape.Line(note))
	}
	lines := len(header) + len(found)
	for _, m := range found {
		if m.Line > 0 {
			m.Line += lines
		}
		header = append(header, "MISTAKE: "+escape.Line(file.Mistakes{m}.Error()))
	}
	err := os.WriteFile(s.path, []byte("# "+strings.Join(header, "\n# ")+"\n"+text), 0o600)
	if err != nil {
		return fmt.Errorf("write the file to edit: %w", err)
	}
	return nil
}

// read returns the text of the file without its header. It is empty if the user has deleted the file.
func (s *editSession) read() (string, error) {
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || len(text) > command.MaxFile {
		return "", errors.Join(fmt.Errorf("read the edited file: it must have at most %d bytes", command.MaxFile), err)
	}
	rest := string(text)
	for strings.HasPrefix(rest, "#") {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	return rest, nil
}

// apply prints what a text changes, and changes it. It returns file.Mistakes if the text has some.
func (s *editSession) apply(ctx context.Context, text string) error {
	set, err := file.Read([]file.Input{{Name: editedName, Text: []byte(text)}})
	if err != nil {
		return err
	}
	spec := set.Spec
	if err := s.check(spec); err != nil {
		return err
	}
	spec.Edit = editOf(s.before)
	call := func(dry bool) (result api.Result, err error) {
		err = s.r.Call(ctx, func(client *admin.Client) error {
			var failed error
			result, failed = admin.Apply.Do(ctx, client, admin.SpecRequest{Spec: spec, DryRun: dry})
			return set.Locate(failed)
		})
		return result, err
	}
	planned, err := call(true)
	switch {
	case err != nil:
		return err
	case !planned.Changed:
		return s.unchanged()
	}
	if planned.Notes = nil; s.r.Output != "json" {
		if err := printPlan(s.r, planned); err != nil {
			return err
		}
	}
	result, err := call(false)
	if err != nil {
		return err
	}
	return s.r.PrintApplied(result)
}

// check returns the mistakes of a file that declares what `fairlead edit` cannot change.
func (s *editSession) check(spec api.Spec) error {
	mistake := func(text string, args ...any) error {
		return file.Mistakes{{File: editedName, Text: fmt.Sprintf(text, args...)}}
	}
	if spec.Set != "" || spec.Gateway != nil || spec.ClusterGateway != nil || len(spec.Addresses) > 0 ||
		len(spec.ClusterServices) > 0 {
		return mistake("want networks, attachments and services of this host only: declare the rest in a file, and run " +
			"`fairlead apply`")
	}
	if s.kind == "" {
		return nil
	}
	objects := len(spec.Networks) + len(spec.Attachments) + len(spec.Services)
	if objects != 1 || !slices.Contains(namesOf(spec, s.kind), s.name) {
		return mistake("want the %s %s, and no other object: edit all objects with `fairlead edit`", s.kind, s.name)
	}
	return nil
}

// openEditor runs the user's editor on the file until it ends. Keys of the terminal that send signals are for the editor.
func (s *editSession) openEditor() error {
	line, err := editor()
	if err != nil {
		return err
	}
	// A shell splits the words of $EDITOR, as for git and kubectl. The trap keeps it until the editor ends.
	cmd := exec.Command("/bin/sh", "-c", "trap : INT; "+line+` "$1"`, "sh", s.path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	s.r.EditorRuns.Store(true)
	defer s.r.EditorRuns.Store(false)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("edit: the editor %q: %w: set EDITOR to another one", line, err)
	}
	return nil
}

// editor returns the command line of the user's editor.
func editor() (string, error) {
	for _, variable := range []string{"VISUAL", "EDITOR"} {
		if line := strings.TrimSpace(os.Getenv(variable)); line != "" {
			return line, nil
		}
	}
	for _, name := range []string{"editor", "vi", "nano"} { // editor is Debian's link to the one that the host prefers
		if _, err := exec.LookPath(name); err == nil {
			return name, nil
		}
	}
	return "", errors.New("edit: there is no editor: none of editor, vi and nano is in PATH: set EDITOR, e.g. EDITOR=emacs")
}
