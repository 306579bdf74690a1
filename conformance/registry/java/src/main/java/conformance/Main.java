package conformance;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.springframework.cloud.stream.schema.registry.SchemaNotFoundException;
import org.springframework.cloud.stream.schema.registry.SchemaReference;
import org.springframework.cloud.stream.schema.registry.client.ConfluentSchemaRegistryClient;

/** Registers and fetches schemas with Spring's client, and reads and writes Avro by them with Apache's library. */
final class Main {
    private static final String FIELD = "{\"name\":\"%s\",\"type\":\"string\",\"default\":\"?\"}";
    private static final String USER = "{\"type\":\"record\",\"name\":\"User\",\"namespace\":\"a\",\"fields\":[%s]}";

    private Main() {}

    public static void main(String[] arguments) throws IOException {
        var client = new ConfluentSchemaRegistryClient();
        client.setEndpoint(arguments[0]);
        String name = FIELD.formatted("name");
        var first = client.register("java-value", "avro", USER.formatted(name));
        var second = client.register("java-value", "avro", USER.formatted(name + "," + FIELD.formatted("city")));
        System.out.println(first.getId() + " " + first.getSchemaReference());
        System.out.println(second.getId() + " " + second.getSchemaReference());
        byte[] data = written(client.fetch(first.getId()), first.getId());
        System.out.println(read(client, data, client.fetch(new SchemaReference("java-value", 2, "avro"))));
        try {
            client.register("java-value", "avro", USER.formatted("{\"name\":\"age\",\"type\":\"int\"}"));
        } catch (RuntimeException refused) {
            System.out.println(refused.getMessage());
        }
        try {
            client.fetch(99);
        } catch (SchemaNotFoundException missing) {
            System.out.println(missing.getMessage());
        }
    }

    private static byte[] written(String text, int id) throws IOException {
        Schema schema = new Schema.Parser().parse(text);
        GenericRecord user = new GenericData.Record(schema);
        user.put("name", "ann");
        var out = new ByteArrayOutputStream();
        out.write(ByteBuffer.allocate(5).put((byte) 0).putInt(id).array());
        var encoder = EncoderFactory.get().directBinaryEncoder(out, null);
        new GenericDatumWriter<GenericRecord>(schema).write(user, encoder);
        return out.toByteArray();
    }

    private static GenericRecord read(ConfluentSchemaRegistryClient client, byte[] data, String reader)
            throws IOException {
        int id = ByteBuffer.wrap(data, 1, 4).getInt();
        Schema writer = new Schema.Parser().parse(client.fetch(id));
        var decoder = DecoderFactory.get().binaryDecoder(data, 5, data.length - 5, null);
        return new GenericDatumReader<GenericRecord>(writer, new Schema.Parser().parse(reader)).read(null, decoder);
    }
}
