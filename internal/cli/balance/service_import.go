package balance

import (
	"fmt"
	"io"
	"os"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/file"
	"fairlead/internal/frontend/importer"

	"github.com/spf13/cobra"
)

func newServiceImport(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var set string
	apply := false
	c := &cobra.Command{
		Use:   "import ipvsadm|keepalived FILE",
		Short: "Convert the services of ipvsadm or keepalived, and its virtual addresses",
		Long: "Convert the output of `ipvsadm -S -n`, or the virtual_server and vrrp_instance blocks of a\n" +
			"keepalived.conf, to a file for `fairlead apply`, and print it. The addresses of a vrrp_instance\n" +
			"become virtual addresses of the cluster to which the host belongs. If FILE is -, read the\n" +
			"standard input. Report each line that is not converted, and why, on the standard error. With\n" +
			"--apply, create the services and addresses at once.",
		Example: "  ipvsadm -S -n | fairlead service import ipvsadm - > fairlead.yaml\n" +
			"  fairlead service import keepalived /etc/keepalived/keepalived.conf > fairlead.yaml\n" +
			"  fairlead service import keepalived /etc/keepalived/keepalived.conf --apply --set edge",
		Args:      command.Arguments(cobra.ExactArgs(2)),
		ValidArgs: []cobra.Completion{"ipvsadm", "keepalived"},
		RunE: func(c *cobra.Command, args []string) error {
			imported, err := importServices(c.InOrStdin(), args[0], args[1])
			if err != nil {
				return command.Usage(err)
			}
			where := args[1]
			if where == "-" {
				where = "standard input"
			}
			for _, l := range imported.Reports {
				r.Err.Note("%s:%d: %s", where, l.Line, l.Text)
			}
			if len(imported.Services)+len(imported.Addresses) == 0 { // applying an empty set would remove the set's services
				return command.Usage(fmt.Errorf("import services from %s: it contains no virtual service or address that can be "+
					"converted", where))
			}
			spec := api.Spec{Set: set, Services: imported.Services, Addresses: imported.Addresses}
			switch {
			case apply:
				return command.Do(c.Context(), r, admin.Apply, admin.SpecRequest{Spec: spec}, r.PrintApplied)
			case r.Output == "json":
				return file.WriteJSON(r.Out.JSONDocument(), spec)
			}
			return file.Write(r.Out.Document(), spec)
		},
	}
	r.Flags(c)
	c.Flags().BoolVar(&apply, "apply", false, "create the services and addresses, as fairlead apply does, instead of printing the "+
		"file")
	c.Flags().StringVar(&set, "set", "", "name of the set of objects (see fairlead apply) to which the services belong; a "+
		"later import with the same name replaces them")
	return c
}

// importServices reads a file of another balancer. from is ipvsadm or keepalived.
func importServices(stdin io.Reader, from, name string) (importer.Imported, error) {
	read := map[string]func([]byte) importer.Imported{"ipvsadm": importer.IPVSAdm,
		"keepalived": importer.Keepalived}[from]
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
	text, err := io.ReadAll(io.LimitReader(in, command.MaxFile+1))
	if err != nil {
		return importer.Imported{}, fmt.Errorf("import services: %w", err)
	}
	if len(text) > command.MaxFile {
		return importer.Imported{}, fmt.Errorf("import services from %s: it is larger than %d bytes: split it", name,
			command.MaxFile)
	}
	return read(text), nil
}
