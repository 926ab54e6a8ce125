package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"fairlead/internal/lab/result"
)

// WriteJSON writes the report with a stable order and indent.
func WriteJSON(w io.Writer, r *result.Report) error {
	text, err := marshal(r, "  ")
	if err != nil {
		return err
	}
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// marshal returns the report as JSON in the current format; without an indent, on
// one line.
func marshal(r *result.Report, indent string) ([]byte, error) {
	stamped := *r
	stamped.Format = result.Format
	text, err := json.Marshal(stamped)
	if err != nil {
		return nil, fmt.Errorf("write report: %w", err)
	}
	if indent == "" {
		return text, nil
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", indent); err != nil {
		return nil, fmt.Errorf("write report: %w", err)
	}
	return out.Bytes(), nil
}

// ReadJSON reads a report that WriteJSON wrote. It fails if the file is something
// else, incomplete, or of a newer format.
func ReadJSON(r io.Reader) (*result.Report, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if err := recognize(text); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var report result.Report
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("read report: the file is damaged: %w", err)
	}
	return &report, nil
}

// recognize returns an error that describes the file if it is not a report that
// this version can read.
func recognize(text []byte) error {
	var head struct {
		Format *int             `json:"format"`
		Suite  *string          `json:"suite"`
		Start  *json.RawMessage `json:"start"`
		End    *json.RawMessage `json:"end"`
	}
	var syntax *json.SyntaxError
	err := json.Unmarshal(text, &head)
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON, or incomplete at byte %d: %w", syntax.Offset, err)
	case err == nil && head.Start != nil && head.End != nil:
		return errors.New("this is the output of iperf3, not a report; import it with `fairlead lab import`")
	case err != nil || head.Format == nil || head.Suite == nil:
		return errors.New("this JSON is not a laboratory report; expected the output of `fairlead lab run --json`")
	case *head.Format > result.Format:
		return fmt.Errorf("the file has format %d, but this fairlead reads only up to %d: use a newer fairlead",
			*head.Format, result.Format)
	case *head.Format < 1:
		return fmt.Errorf("the file has the unknown format %d; this fairlead reads format %d", *head.Format,
			result.Format)
	}
	return nil
}
