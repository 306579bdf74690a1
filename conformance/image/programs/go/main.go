// Starts the image by testcontainers-go, prints where clients connect, and stops it when stdin ends.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/testcontainers/testcontainers-go/modules/kafka"
)

func main() {
	ctx := context.Background()
	container, err := kafka.Run(ctx, "minibroker:8.0.0")
	if err != nil {
		log.Fatal(err)
	}
	brokers, err := container.Brokers(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(brokers[0])
	_, _ = io.ReadAll(os.Stdin)
	if err := container.Terminate(ctx); err != nil {
		log.Fatal(err)
	}
}
