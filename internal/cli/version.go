package cli

import (
	"fmt"
	"io"
	"runtime"

	"fairlead/internal/cli/command"

	"github.com/spf13/cobra"
)

func newVersion(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  fairlead version\n  fairlead version -o json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if a.Output == "json" {
				return a.JSON(map[string]string{"version": a.Version, "go": runtime.Version(),
					"platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := io.WriteString(a.Out.Document(), versionLine(a.Version))
			return err
		},
	}
}

// versionLine returns what `fairlead version` and `fairlead --version` print.
func versionLine(version string) string {
	return fmt.Sprintf("fairlead %s (%s %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
