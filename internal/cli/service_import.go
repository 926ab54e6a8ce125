package cli

import (
	"fmt"
	"io"
	"os"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/file"
	"fairlead/internal/frontend/importer"

	"github.com/spf13/cobra"
)

func newServiceImport(a *app) *cobra.Command {
	r := &remote{app: a}
	var set string
	apply := false
	c := &cobra.Command{
		Use:   "import ipvsadm|keepalived FILE",
		Short: "Turn what ipvsadm or keepalived was told into a file that declares it",
		Long: "Print the file for `fairlead apply` that does what the rules of ipvsadm (what\n" +
			"`ipvsadm -S -n` writes) or the virtual_server blocks of a keepalived.conf do. A FILE of\n" +
			"- is the standard input. What is not carried over is told, with its line, on the standard\n" +
			"error. With --apply, the services are made at once.",
		Example: "  ipvsadm -S -n | fairlead service import ipvsadm - > fairlead.yaml\n" +
			"  fairlead service import keepalived /etc/keepalived/keepalived.conf > fairlead.yaml\n" +
			"  fairlead service import keepalived /etc/keepalived/keepalived.conf --apply --set edge",
		Args:      arguments(cobra.ExactArgs(2)),
		ValidArgs: []cobra.Completion{"ipvsadm", "keepalived"},
		RunE: func(c *cobra.Command, args []string) error {
			imported, err := importServices(c.InOrStdin(), args[0], args[1])
			if err != nil {
				return usage(err)
			}
			where := args[1]
			if where == "-" {
				where = "standard input"
			}
			for _, l := range imported.Left {
				r.err.note("%s:%d: %s", where, l.Line, l.Text)
			}
			if len(imported.Services) == 0 { // applied, nothing would take away what the set has
				return usage(fmt.Errorf("import services of %s: none of it is a virtual service that could be carried over", where))
			}
			spec := daemon.Spec{Set: set, Services: imported.Services}
			switch {
			case apply:
				return r.call(c.Context(), func(client *admin.Client) error {
					result, err := client.Apply(c.Context(), spec, false)
					if err != nil {
						return err
					}
					return r.printApplied(result)
				})
			case r.output == "json":
				return file.WriteJSON(r.out.jsonDocument(), spec)
			}
			return file.Write(r.out.document(), spec)
		},
	}
	r.flags(c)
	c.Flags().BoolVar(&apply, "apply", false, "make the services, as `fairlead apply` does")
	c.Flags().StringVar(&set, "set", "", "name of the set of files that they are")
	return c
}

// importServices reads a file of another balancer's.
func importServices(stdin io.Reader, from, name string) (importer.Imported, error) {
	read := map[string]func([]byte) importer.Imported{"ipvsadm": importer.IPVSAdm, "keepalived": importer.Keepalived}[from]
	if read == nil {
		return importer.Imported{}, fmt.Errorf("import from %q: want ipvsadm or keepalived", from)
	}
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return importer.Imported{}, fmt.Errorf("import services: %w", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return importer.Imported{}, fmt.Errorf("import services: %w", err)
	}
	if len(text) > maxFile {
		return importer.Imported{}, fmt.Errorf("import services of %s: it is larger than %d bytes", name, maxFile)
	}
	return read(text), nil
}
