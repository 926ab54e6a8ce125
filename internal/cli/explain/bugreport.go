package explain

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"fairlead/internal/cli/command"
	"fairlead/internal/escape"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// NewBugreport returns the command `fairlead bugreport`.
func NewBugreport(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var name string
	c := &cobra.Command{
		Use:   "bugreport",
		Short: "Write an archive with what a maintainer asks for",
		Long: "Write a .tar.gz archive with what a maintainer asks for: versions, the features of the kernel, the\n" +
			"desired state and its plan, the views of the daemon and of its gateway and cluster, the last\n" +
			"events and logs, the doctor's findings, reachable ports, and Fairlead's own objects in the\n" +
			"kernel. Each part has limits of time and size. A part that fails is replaced by its error. The\n" +
			"command starts no daemon, and works without one.\n\n" +
			"Passwords, tokens, keys and other credentials of the configuration are hidden, also in the logs.\n" +
			"Names, addresses and rules are not. Only you can read the archive: look at it before you send it.",
		Example: "  fairlead bugreport\n  fairlead bugreport --file /tmp/report.tar.gz",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return command.Usage(errors.New("root is needed to read the host's network: run as root, e.g. with sudo"))
			}
			if name == "" {
				name = "fairlead-bugreport-" + time.Now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			b := &bugreport{Remote: r}
			if err := b.write(c.Context(), name); err != nil {
				return fmt.Errorf("write bug report: %w", err)
			}
			return b.print(name)
		},
	}
	r.Flags(c)
	c.Flags().StringVarP(&name, "file", "f", "", "archive to create (default: fairlead-bugreport-TIME.tar.gz in the "+
		"current directory)")
	return c
}

// writtenReport is the archive of a bug report.
type writtenReport struct {
	File  string    `json:"file"`
	Files []written `json:"files"`
}

// written is a file of a bug report.
type written struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	// What describes the file.
	What string `json:"what"`
	// Error is why the part or the rest of it is missing.
	Error string `json:"error,omitempty"`
}

// write collects the parts, and creates the archive. It replaces no file, and leaves none after an error.
func (b *bugreport) write(ctx context.Context, name string) (err error) {
	// O_EXCL follows no link of another user in /tmp.
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return command.Usage(fmt.Errorf("%s exists: choose another name with --file", name))
	}
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	packed := gzip.NewWriter(f)
	archive := tar.NewWriter(packed)
	dir := strings.TrimSuffix(path.Base(name), ".tar.gz")
	add := func(name string, content []byte) error {
		h := &tar.Header{Name: path.Join(dir, name), Mode: 0o600, Size: int64(len(content)),
			ModTime: time.Now().Truncate(time.Second)}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	}
	if err := b.collect(ctx, add); err != nil {
		return err
	}
	return errors.Join(archive.Close(), packed.Close())
}

// collect runs the parts, and gives their files to add.
func (b *bugreport) collect(ctx context.Context, add func(string, []byte) error) error {
	b.learn(ctx)
	for _, p := range b.parts() {
		content, problem := b.run(ctx, p)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		w := written{Name: p.name, Bytes: len(content), What: p.what, Error: problem}
		b.files = append(b.files, w)
		if len(content) > 0 {
			if err := add(p.name, content); err != nil {
				return err
			}
		}
		if problem != "" {
			if err := add(p.name+".error.txt", []byte(problem+"\n")); err != nil {
				return err
			}
		}
	}
	return add("README.txt", b.contents())
}

// contents describes the files of the archive.
func (b *bugreport) contents() []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "Bug report of Fairlead %s, %s\n\nCredentials are hidden. A part that failed has NAME.error.txt.\n\n",
		b.Version, time.Now().UTC().Format(time.RFC3339))
	for _, f := range b.files {
		fmt.Fprintf(&text, "%-24s %s\n", f.Name, f.What)
	}
	return text.Bytes()
}

// print prints the parts of the archive.
func (b *bugreport) print(name string) error {
	if b.Output == "json" {
		return b.JSON(writtenReport{name, b.files})
	}
	rows := [][]string{{"FILE", "BYTES", "CONTENT"}}
	for _, f := range b.files {
		line, _, _ := strings.Cut(f.Error, "\n")
		if line != "" {
			line = " (" + line + ")"
		}
		rows = append(rows, []string{f.Name, fmt.Sprint(f.Bytes), f.What + line})
	}
	if err := b.Tabled(rows); err != nil {
		return err
	}
	return b.Out.Lines("", "The archive is "+name+".",
		"Credentials are hidden, but names and addresses are not: look at it before you send it:",
		"  tar -xzf "+escape.Shell(name))
}

// machine returns the kernel and the hardware.
func machine() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return fmt.Sprintf("%s %s %s %s", unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]),
		unix.ByteSliceToString(u.Version[:]), unix.ByteSliceToString(u.Machine[:]))
}
