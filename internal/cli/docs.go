package cli

import (
	"os"
	"time"

	"fairlead/internal/cli/command"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newDocs returns the hidden command that writes the man pages for `make
// generate`.
func newDocs(root *cobra.Command) *cobra.Command {
	docs := &cobra.Command{Use: "docs", Short: "Generate documentation from the commands", Hidden: true}
	docs.AddCommand(&cobra.Command{
		Use:   "man DIR",
		Short: "Write the man pages into a directory",
		Args:  command.Arguments(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return command.Usage(err)
			}
			root.DisableAutoGenTag = true
			// A fixed date keeps the pages the same until a command changes.
			date := time.Date(2026, time.November, 20, 0, 0, 0, 0, time.UTC)
			return doc.GenManTree(root, &doc.GenManHeader{Section: "8", Source: "Fairlead", Manual: "Fairlead",
				Date: &date}, args[0])
		},
	})
	return docs
}
