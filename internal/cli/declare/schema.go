package declare

import (
	"encoding/json"

	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/file"

	"github.com/spf13/cobra"
)

// NewSchema returns the command `fairlead schema`.
func NewSchema(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the files for apply",
		Long: "Print the JSON Schema (2020-12) of the files that `fairlead apply` reads. Editors complete\n" +
			"and check a file that names the schema in its first line:\n\n" +
			"  # yaml-language-server: $schema=fairlead.schema.json\n\n" +
			"The schema knows every field, but not how fields depend on each other: `fairlead plan`\n" +
			"finds more mistakes.",
		Example: "  fairlead schema > fairlead.schema.json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			encoder := json.NewEncoder(a.Out.JSONDocument())
			encoder.SetEscapeHTML(false)
			encoder.SetIndent("", "  ")
			return encoder.Encode(file.Schema())
		},
	}
}
