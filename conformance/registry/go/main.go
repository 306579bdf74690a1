// Asks a schema registry with franz-go's client, and prints a line for each answer.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

const record = `{"type":"record","name":"R","fields":[%s]}`

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	ctx := context.Background()
	client := must(sr.NewClient(sr.URLs(os.Args[1])))
	one := sr.Schema{Schema: fmt.Sprintf(record, `{"name":"a","type":"int"}`)}
	two := sr.Schema{Schema: fmt.Sprintf(record, `{"name":"a","type":"int"},{"name":"b","type":"int"}`)}

	created := must(client.CreateSchema(ctx, "go-value", one))
	fmt.Println("created", created.Subject, created.Version, created.ID)
	fmt.Println("found", must(client.LookupSchema(ctx, "go-value", one)).ID)
	fmt.Println("text", must(client.SchemaTextByID(ctx, created.ID)))
	verdict := must(client.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), "go-value", -1, two))
	fmt.Println("compatible", verdict.Is, len(verdict.Messages))
	_, err := client.CreateSchema(ctx, "go-value", two)
	var refused *sr.ResponseError
	fmt.Println("refused", errors.As(err, &refused) && refused.StatusCode == 409)
	for _, set := range client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFullTransitive}, "go-value") {
		fmt.Println("level", set.Subject, set.Level, set.Err)
	}
	for _, set := range client.SetMode(ctx, sr.ModeReadOnly, "other") {
		fmt.Println("mode", set.Subject, set.Mode, set.Err)
	}
	fmt.Println("subjects", must(client.Subjects(ctx)), len(must(client.AllSchemas(ctx))))
	fmt.Println("deleted", must(client.DeleteSubject(ctx, "go-value", sr.SoftDelete)))
	fmt.Println("deleted", must(client.DeleteSubject(ctx, "go-value", sr.HardDelete)))
}
